"""Samples that share beginnings in one packed row have the log-probs and the gradient of copies."""

from __future__ import annotations

import pytest
import torch
from learn.samples import sample
from learn.trees import apart, episodes
from tiny_models import tiny_llama
from torch import Tensor
from transformers import PreTrainedModel

from whet.learn.packing import pack
from whet.learn.scoring import score
from whet.types import Prompt, Sample, Segment


def _weights(samples: list[Sample]) -> Tensor:
    """Made-up weights (B, T) of the drawn tokens: other samples weigh a shared token differently."""
    T = max(len(s.ids) for s in samples)
    weights = torch.sin(torch.arange(len(samples) * T, dtype=torch.float64)).view(-1, T)
    for b, s in enumerate(samples):
        mask = torch.tensor([*s.mask, *[0] * (T - len(s.ids))])
        weights[b] *= mask
    return weights


def _packed(model: PreTrainedModel, samples: list[Sample], share: bool) -> tuple[Tensor, list[Tensor]]:
    model.zero_grad(set_to_none=True)
    scored = score(model, samples, 0.8, share)
    weights = _weights(samples).to(scored.log_probs_BT)
    loss = (weights * scored.log_probs_BT + 0.1 * weights * scored.entropy_BT).sum()
    loss.backward()
    return scored.log_probs_BT.detach(), [p.grad.clone() for p in model.parameters()]


def _copies(model: PreTrainedModel, samples: list[Sample]) -> tuple[Tensor, list[Tensor]]:
    """Every branch alone, through transformers' own attention."""
    model.zero_grad(set_to_none=True)
    weights = _weights(samples)
    log_probs, loss = torch.zeros_like(weights), torch.zeros((), dtype=torch.float64)
    for b, parts in enumerate(apart(samples)):
        for alone, where in parts:
            P = len(alone.prompt.ids)
            log_p = torch.log_softmax(model(torch.tensor([alone.prompt.ids + alone.ids])).logits[0] / 0.8, -1)
            log_p = log_p[P - 1 : -1]
            chosen = log_p[torch.arange(len(where)), torch.tensor(alone.ids)]
            entropy = -(log_p.exp() * log_p).sum(-1)
            loss = loss + (weights[b, where] * (chosen + 0.1 * entropy)).sum()
            log_probs[b, where] = chosen.detach().double()
    loss.backward()
    return log_probs, [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("seed", range(4))
def test_gradients_of_random_trees_are_those_of_copies(seed: int, dtype: torch.dtype, tolerance: float) -> None:
    samples = episodes(seed)
    expected_log_probs, expected = _copies(tiny_llama("sdpa", dtype), samples)
    model = tiny_llama("whet", dtype)
    for share in (True, False):
        log_probs, gradients = _packed(model, samples, share)
        drawn = _weights(samples) != 0
        gap = (log_probs.double() - expected_log_probs)[drawn].abs().max()
        assert float(gap) <= 10 * tolerance
        for got, want in zip(gradients, expected, strict=True):
            assert float((got - want).norm()) <= tolerance * float(want.norm())
    assert len(pack(samples, True).ids_N) < 0.6 * len(pack(samples, False).ids_N)


def test_a_tree_by_hand() -> None:
    """A turn of three tokens is written anew without its first; a second sample draws the same first turn."""
    prompt = Prompt("row", [10, 11], "")
    one = Sample(
        prompt,
        [Segment([1, 2, 3]), Segment([10, 11, 2, 3, 20], False, restart=True), Segment([4, 5])],
        "stop",
    )
    other = sample(prompt, [1, 2, 3, 30, 6], [1, 1, 1, 0, 1])
    packed = pack([one, other], share_prefix=True)
    # Branches: 10 11 1 2 | 10 11 2 3 20 4 | 10 11 1 2 3 30
    assert packed.ids_N.tolist() == [10, 11, 1, 2, 3, 30, 2, 3, 20, 4]
    assert packed.positions_N.tolist() == [0, 1, 2, 3, 4, 5, 2, 3, 4, 5]
    assert (packed.tokens, packed.tokens_apart) == (10, 16)
    # Of the sample with branches only what was drawn is predicted, of the other everything.
    assert packed.targets_M.tolist() == [1, 2, 3, 4, 5, 1, 2, 3, 30, 6]
    assert packed.rows_M.tolist() == [1, 2, 3, 8, 9, 1, 2, 3, 4, 5]
    assert packed.unpack(packed.targets_M).tolist() == [[1, 2, 3, 0, 0, 0, 0, 0, 4, 5], [1, 2, 3, 30, 6, *[0] * 5]]
