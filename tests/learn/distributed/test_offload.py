"""Shards that wait in host memory between calls, and activations between passes: every number is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from learn.distributed.gloo import run_ranks
from learn.distributed.offload_programs import offloaded
from learn.distributed.programs import Case


def assert_same(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    for name in ("metrics", "ids"):
        assert ours[name] == theirs[name], name
    assert torch.equal(ours["values"], theirs["values"])
    assert ours["weights"].keys() == theirs["weights"].keys()
    assert all(torch.equal(tensor, theirs["weights"][name]) for name, tensor in ours["weights"].items())
    made, used = ours["chunks"]
    assert made > 0 == used
    assert theirs["chunks"] is None


@pytest.mark.parametrize("world", [1, 2])
def test_shards_wait_elsewhere_and_change_nothing(world: int, tmp_path: Path) -> None:
    expected = run_ranks(world, offloaded, tmp_path / "here", Case(), False, tmp_path / "a")
    found = run_ranks(world, offloaded, tmp_path / "away", Case(), True, tmp_path / "b")
    for ours, theirs in zip(found, expected, strict=True):
        assert_same(ours, theirs)
        assert all(theirs["between"])
        assert not any(ours["between"])


def test_one_device_does_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from whet.learn import activations, offload

    for module, name in ((offload, "movable"), (activations, "movable"), (activations, "_LEAST")):
        monkeypatch.setattr(module, name, getattr(module, name))  # what the program changes is put back
    ours, theirs = offloaded(Case(), True, tmp_path / "a"), offloaded(Case(), False, tmp_path / "b")
    assert_same(ours, theirs)
    assert all(theirs["between"])
    assert not any(ours["between"])
