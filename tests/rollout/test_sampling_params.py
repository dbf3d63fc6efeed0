"""Sampling parameters that make no sense are refused by name, whoever makes them."""

from __future__ import annotations

from typing import Any

import pytest

from whet.errors import UserError
from whet.rollout.engine import SamplingParams


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 0),
        ("temperature", -0.5),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("top_k", 0),
        ("top_k", -2),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("max_tokens", 0),
        ("stop", ("ok", "")),
    ],
)
def test_a_bad_value_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(UserError, match=f"sampling parameter {name}="):
        SamplingParams(**{name: value})


def test_the_edges_are_allowed() -> None:
    SamplingParams(n=1, temperature=0.0, top_p=1.0, top_k=-1, min_p=0.0, max_tokens=1, stop=())
    SamplingParams(top_k=1, min_p=1.0, top_p=1e-9)
