"""Tensors that wait in host memory: the same objects and bits afterwards, whatever memory they share."""

from __future__ import annotations

import pytest
import torch
from learn.samples import batch
from tiny_models import tiny_llama

from whet.config.schema.actor import ActorConfig
from whet.learn import offload
from whet.learn.offload import Offload, of_weights
from whet.learn.reference import LocalReference


@pytest.fixture
def cpu_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU memory counts as a device's: it moves to other CPU memory."""
    monkeypatch.setattr(offload, "movable", lambda storage: True)


def test_views_of_one_piece_of_memory_come_back_together(cpu_moves: None) -> None:
    whole = torch.arange(12.0).view(3, 4)
    parts = [whole[0], whole[1:], torch.ones(5, dtype=torch.bfloat16), torch.empty(0)]
    before = [part.clone() for part in parts]
    home = Offload(lambda: parts, wait=True)
    with home.here(), home.here():
        pass
    assert [part.untyped_storage().nbytes() for part in parts] == [0, 0, 0, 0]
    with home.here():
        with home.here():  # who is asked from inside does not send the weights away
            pass
        assert all(torch.equal(part, kept) for part, kept in zip(parts, before, strict=True))
        assert parts[0].data_ptr() == whole.data_ptr()
        whole[0, 0] = 7.0
    with home.here():
        assert parts[0][0] == 7.0


def test_host_memory_stays_where_it_is() -> None:
    weights = torch.ones(4)
    with Offload(lambda: [weights], wait=True).here():
        pass
    assert weights.untyped_storage().nbytes() == 16


def test_a_reference_is_there_for_its_passes_only(cpu_moves: None) -> None:
    model, samples = tiny_llama("whet"), batch()
    expected = LocalReference(tiny_llama("whet"), ActorConfig(), 1.0, 40).log_probs(samples)
    reference = LocalReference(model, ActorConfig(), 1.0, 40, of_weights(model, wait=True))
    for _ in range(2):
        assert torch.equal(reference.log_probs(samples), expected)
        assert not any(p.untyped_storage().nbytes() for p in model.parameters())


def test_one_copy_is_made_of_what_never_changes(cpu_moves: None) -> None:
    whole = torch.arange(12.0)
    home = Offload(lambda: [whole], wait=True, fixed=True)
    with home.here():
        pass
    ((_, kept),) = home._away
    for _ in range(2):
        with home.here():
            assert torch.equal(whole, torch.arange(12.0))
        assert whole.untyped_storage().nbytes() == 0
        assert home._away[0][1] is kept
    home.wait = False  # another stage has room for it
    with home.here():
        pass
    assert torch.equal(whole, torch.arange(12.0))
