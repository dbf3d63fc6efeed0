"""The grammar of actions, and coordinates that must be on the screen."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from phone.actions import Action, BadAction, read_action

SIZE = (84, 120)


@pytest.mark.parametrize(
    ("turn", "action"),
    [
        ("tap(3, 119)", Action("tap", ((3, 119),))),
        (" tap( 0 ,0 ) \n", Action("tap", ((0, 0),))),
        ("<think>tap(1, 1)</think>I see it.\ntap(2, 2)", Action("tap", ((2, 2),))),
        ("<action>tap(1, 1)</action> then <action>key(back)</action>", Action("key", word="back")),
        ("swipe(1, 2, 3, 4)", Action("swipe", ((1, 2), (3, 4)))),
        ('text("say \\"hi\\" (now)")', Action("text", word='say "hi" (now)')),
        ("wait()", Action("wait")),
        ("done()", Action("done")),
    ],
)
def test_actions_are_read(turn: str, action: Action) -> None:
    assert read_action(turn, SIZE) == action
    assert read_action(str(action), SIZE) == action


@pytest.mark.parametrize(
    ("turn", "said"),
    [
        ("", "no action"),
        ("I tap the red one", "no action"),
        ("tap(1, 1) and tap(2, 2)", "whole numbers"),
        ("tap(84, 0)", "x goes from 0 to 83 and y from 0 to 119"),
        ("tap(0, 120)", "not on the screen"),
        ("tap(-1, 0)", "whole numbers"),
        ("tap(1.5, 0)", "whole numbers"),
        ("tap(1)", "2 whole numbers"),
        ("tap(١, 1)", "whole numbers"),
        ("tap(999999999999999999999, 1)", "whole numbers"),
        ("swipe(1, 2)", "4 whole numbers"),
        ("swipe(1, 2, 3, 500)", "not on the screen"),
        ("key(power)", "no key 'power'"),
        ("text(milk)", "in quotes"),
        ('text("")', "in quotes"),
        ('text("mi\\nlk")', "ASCII"),
        (f'text("{"a" * 201}")', "200 characters"),
        ("text(" + "[" * 100_000 + ")", "in quotes"),
        ("done(1)", "takes nothing"),
        ("<think>tap(1, 1)", "no action"),
    ],
)
def test_what_is_no_action_is_said_to_the_model(turn: str, said: str) -> None:
    with pytest.raises(BadAction, match=said):
        read_action(turn, SIZE)


def test_relative_coordinates_reach_every_side_of_the_screen() -> None:
    assert read_action("tap(0, 0)", SIZE, "relative").points == ((0, 0),)
    assert read_action("tap(1000, 1000)", SIZE, "relative").points == ((83, 119),)
    assert read_action("tap(500, 500)", SIZE, "relative").points == ((42, 60),)
    with pytest.raises(BadAction, match="from 0 to 1000"):
        read_action("tap(1001, 0)", SIZE, "relative")


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=60))
def test_no_text_breaks_the_parser(text: str) -> None:
    try:
        action = read_action(text, SIZE)
    except BadAction:
        return
    assert read_action(str(action), SIZE) == action
