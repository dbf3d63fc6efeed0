"""Adapters whose package is not installed, and settings in names."""

from __future__ import annotations

import sys

import pytest

from whet.data.files import read_rows
from whet.envs.generated import is_generated, split_settings
from whet.envs.loading import env_factory
from whet.errors import UserError


@pytest.mark.parametrize("package", ["gymnasium", "reasoning_gym"])
def test_a_package_that_is_missing_is_named_with_its_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for call in (lambda: env_factory(f"{package}:x"), lambda: read_rows(f"{package}:x@3")):
        with pytest.raises(UserError) as error:
            call()
        assert f"pip install 'whet[{package}]'" in str(error.value)


def test_settings_behind_a_name() -> None:
    assert split_settings("a?b=1&c=x&d=true") == ("a", {"b": 1, "c": "x", "d": True})
    with pytest.raises(UserError, match="is no setting"):
        split_settings("a?b")


def test_which_data_is_generated() -> None:
    assert is_generated("gymnasium:FrozenLake-v1@3")
    assert not is_generated("single_turn:x@3")
    assert not is_generated("openai/gsm8k:main@train")
