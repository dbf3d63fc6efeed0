"""What a step of several ranks must have in common with that of one process."""

from __future__ import annotations

from typing import Any

import pytest
import torch


def assert_close(ours: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-5) -> None:
    """By the norm of the difference, relative to that of the expected tensor."""
    assert float((ours - expected).norm()) <= tolerance * float(expected.norm())


def assert_same_steps(results: list[list[dict[str, Any]]], expected: list[dict[str, Any]]) -> None:
    """What `train` returns on every rank against that of one process; the first rank alone has weights."""
    for number, one in enumerate(expected):
        for rank, found in enumerate(each[number] for each in results):
            assert _learned(found["metrics"]) == pytest.approx(_learned(one["metrics"]), rel=1e-5, abs=1e-6)
            for update, (ours, theirs) in enumerate(zip(found["gradients"], one["gradients"], strict=True)):
                for grad, reference in zip(ours, theirs, strict=True):
                    # AdamW turns a gradient of rounding errors into a whole step, which later updates begin with
                    assert_close(grad, reference, 1e-5 if update == 0 else 1e-3)
            for ours, theirs in zip(found["values"], one["values"], strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
            assert found["weights"].keys() == (one["weights"].keys() if rank == 0 else set())
            for name, weight in found["weights"].items():
                assert_close(weight, one["weights"][name], 1e-4)


def _learned(metrics: dict[str, float]) -> dict[str, float]:
    """Metrics without those of how samples were packed, which differs between numbers of ranks."""
    return {name: value for name, value in metrics.items() if not name.startswith("perf/")}
