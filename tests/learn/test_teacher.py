"""A teacher as a term of the loss (any cut, by data source, with prompts of its own) and as advantages."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from learn.samples import batch
from tiny_models import tiny_llama
from torch import Tensor
from transformers import PreTrainedModel

from whet.config import Config, with_values
from whet.learn.learner import LocalLearner
from whet.learn.packing import pad
from whet.learn.partition import Budget, micro_batches
from whet.learn.scoring import score
from whet.learn.teacher import LocalTeacher
from whet.training.experience import make_experience, sampler_log_probs
from whet.training.objective import objective
from whet.types import Sample

TEMPERATURE = 0.8


def _moved(implementation: str, seed: int) -> PreTrainedModel:
    """A model near the policy."""
    model, g = tiny_llama(implementation, torch.float64), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p += 0.05 * torch.randn(p.shape, generator=g).double()
    return model.requires_grad_(False)


def _teacher() -> LocalTeacher:
    models = {None: _moved("whet", 8), "code": _moved("whet", 9)}
    return LocalTeacher(models, Config().worker.actor, TEMPERATURE, 50)


def _samples(seed: int) -> list[Sample]:
    """Samples of several sources: one with a teacher of its own, one without, one that is no text."""
    samples = batch(seed=seed)
    for sample in samples:
        sample.prompt.extra = {"data_source": {0: "code", 1: "math", 2: 3}.get(sample.group)}
    return samples


def _hinted(samples: list[Sample]) -> list[Sample]:
    prompts = {id(s.prompt): replace(s.prompt, ids=[5, 11, *s.prompt.ids, 7]) for s in samples}
    return [replace(s, prompt=prompts[id(s.prompt)]) for s in samples]


def _log_probs(model: PreTrainedModel, sample: Sample) -> Tensor:
    """(T, V) of one sample alone, through transformers' own attention."""
    logits = model(torch.tensor([sample.prompt.ids + sample.ids])).logits[0, len(sample.prompt.ids) - 1 : -1]
    return torch.log_softmax(logits / TEMPERATURE, -1)


@pytest.mark.parametrize("hinted", [False, True])
@pytest.mark.parametrize(("share", "tokens"), [(True, 10_000), (True, 25), (False, 1)])
def test_the_term_of_the_loss_and_its_gradient(share: bool, tokens: int, hinted: bool) -> None:
    samples = _samples(3)
    read = _hinted(samples) if hinted else samples
    keys = {"model_path": "here", "divergence": "jsd", "beta": 0.3, "coef": 0.7}
    config = with_values(Config(), {f"algorithm.distill.{name}": value for name, value in keys.items()})
    experience, _ = make_experience(samples, sampler_log_probs(samples), None, config.algorithm)
    experience.advantages_BT.fill_(torch.inf)  # which nobody asked for
    experience.teacher_samples = read if hinted else None
    model, plain = tiny_llama("whet", torch.float64), tiny_llama("sdpa", torch.float64)
    loss_of = objective(experience, config).begin(list(range(len(samples))), torch.Tensor)
    total = 0.0
    for rows in micro_batches(samples, share, tokens, 0):
        scored = score(model, [samples[i] for i in rows], TEMPERATURE, share)
        loss, metrics = loss_of.loss(replace(scored, teacher=_teacher()), rows)
        assert float(loss.detach()) == pytest.approx(0.7 * float(metrics["distill_loss"]))
        loss.backward()
        total += float(loss.detach())
    plain_teachers = {name: _moved("sdpa", 9 if name == "code" else 8) for name in ("code", "math", 3, None)}
    found = []
    for sample, seen in zip(samples, read):
        s, t = _log_probs(plain, sample), _log_probs(plain_teachers[sample.prompt.extra["data_source"]], seen)
        m = (0.3 * t.exp() + 0.7 * s.exp()).log()
        jsd = 0.3 * (t.exp() * (t - m)).sum(-1) + 0.7 * (s.exp() * (s - m)).sum(-1)
        found.append(jsd[torch.tensor(sample.mask).bool()])
    expected = 0.7 * torch.cat(found).mean()
    expected.backward()
    assert total == pytest.approx(float(expected.detach()), rel=1e-9)
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert float((ours.grad - theirs.grad).norm()) <= 1e-9 * float(theirs.grad.norm())


def test_log_probs_of_each_samples_teacher() -> None:
    samples = _samples(4)
    found_BT = _teacher().log_probs(samples)
    for row, sample in zip(found_BT, samples):
        plain = _moved("sdpa", 9 if sample.group == 0 else 8)
        expected = _log_probs(plain, sample).gather(1, torch.tensor(sample.ids)[:, None])[:, 0]
        torch.testing.assert_close(row[: len(sample.ids)].double(), expected, atol=1e-5, rtol=1e-5)


def test_advantages_from_the_teachers_log_probs() -> None:
    samples = _samples(5)
    keys = {"model_path": "here", "use": "advantage", "coef": 0.5, "reward_coef": 2.0}
    config = with_values(Config(), {f"algorithm.distill.{name}": value for name, value in keys.items()})
    old = sampler_log_probs(samples)
    teacher_BT = _teacher().log_probs(samples)
    rewarded, _ = make_experience(samples, old, None, Config().algorithm)
    taught, metrics = make_experience(samples, old, None, config.algorithm, {"teacher_log_probs": teacher_BT})
    mask = pad([s.mask for s in samples])
    torch.testing.assert_close(
        taught.advantages_BT, 2 * rewarded.advantages_BT + 0.5 * (teacher_BT - old) * mask, atol=1e-6, rtol=1e-6
    )
    assert torch.all(taught.advantages_BT[mask == 0] == 0)
    assert metrics["actor/teacher_kl"] == pytest.approx(float(((old - teacher_BT) * mask).sum() / mask.sum()), rel=1e-5)


def test_rewards_and_teacher_add_up() -> None:
    samples = _samples(6)
    keys = {"algorithm.distill.model_path": "here", "algorithm.distill.reward_coef": 0.25}
    config = with_values(Config(), keys)
    experience, _ = make_experience(samples, sampler_log_probs(samples), None, config.algorithm)
    rows = list(range(len(samples)))
    learner = LocalLearner(tiny_llama("whet", torch.float64), config.worker.actor, TEMPERATURE, 10, Budget(40, 40))
    learner.teacher = _teacher()
    loss, metrics = objective(experience, config).begin(rows, torch.Tensor).loss(learner.forward(samples), rows)
    assert float(loss.detach()) == pytest.approx(0.25 * float(metrics["pg_loss"]) + float(metrics["distill_loss"]))
    assert learner.forward(samples).teacher is learner.teacher
