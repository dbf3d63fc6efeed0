"""Steps of a response: where they end, and that cutting segments changes nothing but rewards."""

from __future__ import annotations

import copy
import random

import pytest
import torch
from learn.samples import batch
from tiny_models import tiny_llama

from whet.algos import LossInputs
from whet.config.schema.actor import ActorConfig
from whet.config.schema.algorithm import AlgorithmConfig
from whet.config.schema.model import OptimConfig
from whet.config.schema.tree import Config, WorkerConfig
from whet.learn.learner import LocalLearner
from whet.learn.partition import Budget
from whet.rewards.judges.pairs import pairs_of
from whet.rewards.steps import earn, step_ends
from whet.training.experience import make_experience, sampler_log_probs
from whet.training.objective import objective
from whet.types import Prompt, Sample, Segment


def sample(*turns: tuple[list[str], bool]) -> tuple[Sample, dict[int, str]]:
    """A sample whose tokens stand for these texts, each a token of its own, and the text of each token."""
    pieces: dict[int, str] = {}
    segments = []
    for texts, by_model in turns:
        ids = list(range(len(pieces), len(pieces) + len(texts)))
        pieces |= dict(zip(ids, texts))
        segments.append(Segment(ids, by_model, [0.0] * len(ids)))
    return Sample(Prompt("row:0", [1], ""), segments, "stop", scores={"overall": 0.0}), pieces


@pytest.mark.parametrize(
    ("turns", "ends"),
    [
        ([(["a", "\n", "\n", "b"], True)], [3, 4]),  # a separator of two tokens
        ([(["a\n\nb", "c\n\n"], True)], [1, 2]),  # one in the middle of a token
        ([(["a\n\nb\n\nc"], True)], [1]),  # several steps in one token
        ([(["\n\n", "a", "\n\n\n\n", "\n\n", ""], True)], [4]),  # blanks around, an end token without text
        ([(["", "\n\n"], True)], [2]),  # nothing but blanks
        ([(["a", "\n\n", "b"], True), (["x\n\ny"], False), (["c"], True)], [2, 3, 5]),  # a tool has no steps
        ([([], True)], []),
    ],
)
def test_where_steps_end(turns, ends):
    made, pieces = sample(*turns)
    assert step_ends(made, pieces.__getitem__, "\n\n") == ends


def test_rewards_of_segments_stay_and_add_up():
    made, _ = sample((["a", "b", "c"], True), (["x"], False), (["d"], True))
    made.segments[0].reward, made.segments[2].reward = 2.0, 4.0
    earn(made, {1: 0.5, 3: 0.25, 5: 1.0})
    assert made.rewards == [0.5, 0.0, 2.25, 0.0, 5.0]
    assert made.reward == 7.75
    assert [segment.by_model for segment in made.segments] == [True, True, False, True]


@pytest.mark.parametrize("estimator", ["grpo", "reinforce_plus_plus", "gae"])
def test_cutting_segments_without_rewards_changes_no_bit_of_the_update(estimator):
    whole, rng = batch(), random.Random(3)
    cut = copy.deepcopy(whole)
    for each in cut:
        places = rng.sample(range(1, len(each.ids) + 1), rng.randint(1, len(each.ids)))
        earn(each, dict.fromkeys(places, 0.0))
        assert len(each.segments) >= 1
    assert any(len(each.segments) > 2 for each in cut)
    weights = [_updated(samples, estimator) for samples in (whole, cut)]
    assert all(torch.equal(a, b) for a, b in zip(*weights))


def _updated(samples: list[Sample], estimator: str) -> list[torch.Tensor]:
    actor = ActorConfig(optim=OptimConfig(lr=0.01))
    algorithm = AlgorithmConfig(adv_estimator=estimator, disable_kl=True)
    config = Config(worker=WorkerConfig(actor=actor), algorithm=algorithm)
    learner = LocalLearner(tiny_llama("whet"), actor, temperature=1.0, total_steps=10, budget=Budget(40, 80))
    old = sampler_log_probs(samples)
    values = {"values": torch.zeros_like(old)} if estimator == "gae" else {}
    experience, _ = make_experience(samples, old, None, algorithm, values)
    assert isinstance(experience.loss_inputs([0], old[:1]), LossInputs)
    learner.update(samples, objective(experience, config), step=1, mini_batch=len(samples))
    return [parameter.detach().clone() for parameter in learner.model.parameters()]


@pytest.mark.parametrize("size", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("opponents", [1, 2, 3, 4, 100, None])
def test_every_response_has_its_opponents(size, opponents):
    found = pairs_of(size, opponents)
    assert len(set(found)) == len(found)
    assert all(first < second for first, second in found)
    met = [sum(i in pair for pair in found) for i in range(size)]
    wanted = size - 1 if opponents is None else min(opponents, size - 1)
    assert set(met) <= ({wanted, wanted + 1} if size % 2 and wanted % 2 else {wanted})
