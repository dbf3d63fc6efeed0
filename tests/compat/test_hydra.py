"""Hydra's syntax: forms of arguments and values, as Hydra 1.3 reads them."""

from __future__ import annotations

from typing import Any

import pytest

from whet.compat.hydra import HydraSyntaxError, read_command_line, read_override, read_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("True", True),
        ("false", False),
        ("1e-6", 1e-6),
        ("4.0e-2", 0.04),
        ("1.", 1.0),
        ("1_000", 1000),
        ("007", "007"),
        ("0.999_1.001", "0.999_1.001"),
        ("null", None),
        ("None", "None"),
        ("", ""),
        ("[console,wandb]", ["console", "wandb"]),
        ('["console","wandb"]', ["console", "wandb"]),
        ("['a', 'b']", ["a", "b"]),
        ("[]", []),
        ("{n:16,t:1.0}", {"n": 16, "t": 1.0}),
        ("{a:{b:[1,2]}}", {"a": {"b": [1, 2]}}),
        ("hub/name@split", "hub/name@split"),
        ("pkg://a.b", "pkg://a.b"),
        (".*visual.*", ".*visual.*"),
        ("'a b'", "a b"),
        ("a b", "a b"),
        (r"a\=b", "a=b"),
        ("'it''s'", None),
        ("${other.key}/x", "${other.key}/x"),
        ("str(5)", "5"),
    ],
)
def test_values(text: str, value: Any) -> None:
    if text == "'it''s'":
        with pytest.raises(HydraSyntaxError):
            read_value(text)
    else:
        read = read_value(text)
        assert read == value
        assert type(read) is type(value)


@pytest.mark.parametrize(
    "text", ["~/x", "a,b", '{"n":16}', "<path>", "a=b", "[a,b", "{a}", "'a", "${a", "choice(a,b)", "#"]
)
def test_what_hydra_refuses(text: str) -> None:
    with pytest.raises(HydraSyntaxError):
        read_value(text)


def test_forms_of_arguments() -> None:
    assert (read_override("+a.b=1").mode, read_override("++a.b=1").mode, read_override("~a.b").mode) == ("+", "++", "~")
    line = read_command_line(["--config-path=config", "-cn", "x.yaml", "a=1", " ", "~b=2", "--multirun"])
    assert (line.path, line.name) == ("config", "x.yaml")
    assert [(each.key, each.value, each.mode) for each in line.overrides] == [("a", 1, ""), ("b", 2, "~")]
    assert (len(line.refused), line.multirun) == (1, True)
    assert read_command_line(["a=1,2", "-m"]).refused == []  # a sweep, which Hydra takes
