"""Weights on their way to ranks that sample: all of them arrive as they were, or nobody samples with them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from distributed.broadcast_programs import exchange, weights
from learn.distributed.gloo import run_ranks


def test_every_receiver_has_what_was_sent(tmp_path: Path) -> None:
    sender, *receivers = run_ranks(3, exchange, tmp_path, 2, 2, False)
    assert sender is None
    for first, second in receivers:
        later = weights(2)
        for name, tensor in weights(1).items():
            assert torch.equal(first[name], tensor)
            assert first[name].dtype == tensor.dtype
            assert torch.equal(second[name], later[name] if name in "ab" else tensor)


@pytest.mark.parametrize(("wanted", "damaged"), [(3, False), (2, True)], ids=["another version", "damaged"])
def test_what_is_not_what_was_sent_is_refused(tmp_path: Path, wanted: int, damaged: bool) -> None:
    _, said = run_ranks(2, exchange, tmp_path, 2, wanted, damaged)
    assert "not those that were sent" in said
