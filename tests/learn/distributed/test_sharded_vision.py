"""A sharded vision-language model computes what one process computes, also where a rank has no image to read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from learn.distributed.gloo import run_ranks
from learn.distributed.programs import Case
from learn.distributed.vision_programs import model_of, train, values

from whet.config.schema.model import FSDPConfig

CASES = [
    (Case(family="qwen2_5_vl", tokens=None, size=2, mini_batch=6), False),
    (Case(family="qwen3_vl", tokens=60, mini_batch=6), False),
    (Case(family="qwen3_vl", tokens=60, mini_batch=4, share=False), True),
    (Case(family="qwen2_5_vl", tokens=60, mini_batch=6, fsdp=FSDPConfig(enable_full_shard=False)), True),
]
TENSOR = [(Case(family="qwen2_5_vl", tokens=60, mini_batch=6, tensor=2), False)]
SEQUENCES = [(Case(family=kind, tokens=60, mini_batch=6, sequence=2), False) for kind in ("qwen2_5_vl", "qwen3_vl")]


def _same(ours: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-4) -> None:
    assert ours.shape == expected.shape
    assert float((ours - expected).norm()) <= tolerance * float(expected.norm()) + 1e-7


@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(CASES[1:2], id="trained"),
        pytest.param(CASES[:1] + CASES[2:], id="frozen", marks=pytest.mark.slow),
        pytest.param(SEQUENCES, id="sequence", marks=pytest.mark.slow),
        pytest.param(TENSOR, id="tensor", marks=pytest.mark.slow),
    ],
)
def test_ranks_with_and_without_images_train_as_one(tmp_path: Path, cases: list[tuple[Case, bool]]) -> None:
    expected = train(cases)
    ranks = run_ranks(2, train, tmp_path, cases)
    for i, ((_, frozen), one) in enumerate(zip(cases, expected, strict=True)):
        drawn = {}
        for found in (rank[i] for rank in ranks):
            for ours, theirs in zip(found["values"], one["values"], strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
            for ours, theirs in zip(found["gradients"], one["gradients"], strict=True):
                for a, b in zip(ours, theirs, strict=True):
                    _same(a, b)
            assert found["states"] == one["states"]
            drawn |= {uid: (ids, numbers) for uid, ids, numbers in found["drawn"][:1]}
        assert len(drawn) == 2
        for uid, ids, log_probs in one["drawn"][:1]:
            assert drawn[uid][0] == ids
            assert drawn[uid][1] == pytest.approx(log_probs, abs=1e-3)
        weights, start = ranks[0][i]["weights"], model_of(cases[i][0]).state_dict()
        changed = {name for name, tensor in one["weights"].items() if not torch.equal(tensor, start[name])}
        assert any("visual" in name for name in changed) != frozen
        for name, tensor in one["weights"].items():
            _same(weights[name], tensor, 1e-3)
        case = cases[i][0]
        if case.sequence == case.tensor == 1:  # each pass reads images, or the smallest there is in their place
            assert {4} < {n for rank in ranks for n in rank[i]["passes"]}


def test_a_critic_with_eyes_is_sharded(tmp_path: Path) -> None:
    case = Case(family="qwen3_vl")
    ranks = run_ranks(2, values, tmp_path, case)
    for (found,), expected in zip(ranks, values(case), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
