"""Episodes: rewards, ends, limits, coordinates of shrunk screenshots, replays, and devices that fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from environments import NumberGame, TreeGame
from games.rows import row
from phone.device import DeviceError
from phone.episode import PhoneEpisode
from PIL import Image

from whet.errors import UserError

TINY = {"size": [84, 84], "columns": 2, "rows": 2, "count": 3, "highest": 3, "turns": 4}


def tap(env: Any, place: tuple[float, float]) -> str:
    width, height = env.device.size()
    return f"tap({int(place[0] * width)}, {int(place[1] * height)})"


def play_right(env: Any, turns: int = 100) -> list[tuple[Any, float, bool, dict[str, Any]]]:
    results: list[tuple[Any, float, bool, dict[str, Any]]] = []
    while len(results) < turns and not (results and results[-1][2]):
        results.append(env.step(tap(env, env.places()[0])))
    return results


@pytest.mark.parametrize(("env", "end"), [(NumberGame(**TINY), "won"), (NumberGame(), "won"), (TreeGame(), "found")])
def test_a_right_game_earns_one_and_is_accurate(env: Any, end: str) -> None:
    (first,) = env.reset(row(5))
    image, text = first["content"]
    assert image["image"].size == env.device.size()
    assert text["text"].startswith(("Tap the numbers", "Open "))
    results = play_right(env)
    assert sum(reward for _, reward, _, _ in results) == pytest.approx(1.0)
    assert results[-1][0] is None
    assert results[-1][3] == {"end": end, "accuracy": 1, "invalid": 0}
    assert all(isinstance(seen, Image.Image) for seen, _, done, _ in results if not done)


def test_a_wrong_number_ends_the_game_unless_mistakes_are_allowed() -> None:
    env = NumberGame(**TINY)
    env.reset(row(2))
    env.step(tap(env, env.places()[0]))
    seen, reward, done, info = env.step(tap(env, env.places()[1]))
    assert (seen, reward, done, info["end"], info["accuracy"]) == (None, 0.0, True, "wrong number", 0)
    env = NumberGame(**TINY, mistakes=1)
    env.reset(row(2))
    assert not env.step(tap(env, env.places()[1]))[2]
    assert env.step(tap(env, env.places()[2]))[3]["end"] == "wrong number"


def test_only_coming_nearer_to_the_leaf_than_before_earns() -> None:
    env = TreeGame(turns=20)
    env.reset(row(1))
    assert env.step(tap(env, env.places()[1]))[1] == 0
    assert env.step("key(back)")[1] == 0
    assert env.step(tap(env, env.places()[0]))[1] == pytest.approx(1 / 3)
    assert env.step("key(back)")[1] == 0
    assert env.step(tap(env, env.places()[0]))[1] == 0
    env.step(tap(env, env.places()[0]))
    seen, reward, done, info = env.step(tap(env, env.places()[2]))
    assert (seen, reward, done, info["end"], info["accuracy"]) == (None, 0, True, "wrong leaf", 0)


def test_a_guided_game_names_the_next_button_before_each_screenshot() -> None:
    env = TreeGame(size=[84, 84], depth=2, names="colours", guided=True, turns=6)
    (first,) = env.reset(row(3))
    told, image = first["content"]
    way = env._app.leaf.path
    assert (told["text"], image["type"]) == (f"Open {way[0]}.", "image")
    assert env.step(tap(env, env.places()[1]))[0]["text"] == "Go back.<image>"
    assert env.step("key(back)")[0]["text"] == f"Open {way[0]}.<image>"
    assert env.step("tap it")[0]["text"].startswith(f"Open {way[0]}.<image>There is no action")
    seen = env.step(tap(env, env.places()[0]))[0]
    assert (seen["text"], len(seen["images"])) == (f"Open {way[1]}.<image>", 1)
    assert env.step(tap(env, env.places()[0]))[3]["end"] == "found"


def test_turns_without_an_action_are_answered_and_counted() -> None:
    env = NumberGame(**TINY)
    env.reset(row(2))
    seen, reward, done, info = env.step("I would tap the red one.")
    assert "tap(x, y)" in seen["text"]
    assert (reward, done, info) == (0.0, False, {"invalid": 1})
    assert "x goes from 0 to 83" in env.step("tap(84, 3)")[0]["text"]
    assert env.step("hm")[2] is False
    seen, reward, done, info = env.step("hm")
    assert (seen, done, info["end"]) == (None, True, "out of turns")


def test_a_game_ends_when_its_turns_do() -> None:
    env = NumberGame(**TINY)
    env.reset(row(2))
    for _ in range(3):
        assert not env.step("wait()")[2]
    assert env.step("wait()")[3]["end"] == "out of turns"
    env.reset(row(2))
    assert env.step("done()")[3] == {"end": "gave up", "accuracy": 0, "invalid": 0}


@pytest.mark.parametrize("coordinates", ["pixels", "relative"])
def test_points_on_a_shrunk_screenshot_reach_the_screen(coordinates: str) -> None:
    env = NumberGame(size=[1080, 2400], longest=784, coordinates=coordinates)
    (first,) = env.reset(row(7))
    shown = first["content"][0]["image"].size
    assert shown == (336, 784)
    total, done = 0.0, False
    while not done:
        x, y = env.places()[0]
        scale = (1000, 1000) if coordinates == "relative" else shown
        _, reward, done, _ = env.step(f"tap({int(x * scale[0])}, {int(y * scale[1])})")
        total += reward
    assert total == pytest.approx(1.0)


def test_a_player_who_closes_windows_and_repeats_touches_wins_on_a_troubled_phone() -> None:
    trouble = {"animation": 0.4, "drop": 0.3, "popup": 0.3}
    won = 0
    for seed in range(10):
        env = NumberGame(**{**TINY, "turns": 40}, trouble=trouble)
        env.reset(row(seed))
        while True:
            covered = env.device._covered
            result = env.step("key(back)" if covered else tap(env, env.places()[0]))
            if result[2]:
                won += result[3]["end"] == "won"
                break
    assert won == 10


@pytest.mark.parametrize("fault", ["disconnect", "black", "hang"])
def test_a_device_that_fails_raises_with_its_name(fault: str) -> None:
    env = NumberGame(**TINY, trouble={"fault": fault, "fault_call": 2})
    env.reset(row(9))
    with pytest.raises(DeviceError, match="simulated number_game, seed 9: screenshot: "):
        play_right(env)
    env.close()


def test_chance_is_a_sixth() -> None:
    """A player who touches any of the tiles that are left wins one game of 3 · 2 · 1."""
    from random import Random

    rng, won = Random(1), 0
    for seed in range(300):
        env = NumberGame(**TINY)
        env.reset(row(seed))
        done = False
        while not done:
            _, _, done, info = env.step(tap(env, rng.choice(env.places())))
        won += info["accuracy"]
    assert won / 300 == pytest.approx(1 / 6, abs=0.08)


@pytest.mark.parametrize("game", [NumberGame, TreeGame])
def test_a_replay_has_a_frame_for_each_action_and_the_end(game: type[PhoneEpisode], tmp_path: Path) -> None:
    for number in range(2):
        env: Any = game(replay=str(tmp_path))
        env.reset(row(4))
        turns = len(play_right(env))
        env.close()
        env.close()  # a second one writes nothing
        assert len(list(tmp_path.iterdir())) == number + 1
    for file in tmp_path.iterdir():
        with Image.open(file) as replay:
            assert replay.n_frames == turns + 1  # type: ignore[attr-defined]
            assert max(replay.size) >= 240


def test_bad_options_are_refused() -> None:
    for bad in ({"coordinates": "inches"}, {"turns": 0}, {"settle": -1}, {"longest": 5}):
        with pytest.raises(UserError, match=next(iter(bad))):
            NumberGame(**{**TINY, **bad})
