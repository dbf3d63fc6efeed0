"""Functions take what they name."""

from __future__ import annotations

from typing import Any

import pytest

from whet.envs.harness.programs import taken_names


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda base_url, api_key, row: 0, ["base_url", "api_key", "row"]),
        (lambda row, base_url: 0, ["row", "base_url"]),
        (lambda base_url, tries=3: 0, ["base_url"]),
        (lambda **given: 0, ["base_url", "api_key", "row"]),
        (lambda a, b, c: 0, None),
        (lambda *given: 0, None),
        (lambda base_url, key, row: 0, None),
    ],
)
def test_names_that_a_function_takes(function: Any, names: list[str] | None) -> None:
    assert taken_names(function) == names


@pytest.mark.parametrize("function", [lambda: 0, lambda one: 0, lambda a, b, c, d: 0, lambda base_url, *, more: 0])
def test_functions_that_cannot_be_called(function: Any) -> None:
    with pytest.raises(TypeError):
        taken_names(function)
