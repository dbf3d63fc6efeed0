"""Exact KL over the vocabulary, as a number, as a term of the loss, and in the reward."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from learn.samples import batch
from tiny_models import tiny_llama
from torch import Tensor
from transformers import PreTrainedModel

from whet.config import Config, with_values
from whet.learn import log_probs
from whet.learn.distributions import full_kl
from whet.learn.learner import LocalLearner
from whet.learn.packing import pad
from whet.learn.partition import Budget, micro_batches
from whet.learn.reference import LocalReference
from whet.learn.scoring import score
from whet.model.load import Head
from whet.training.experience import make_experience, sampler_log_probs
from whet.training.objective import Coefficients, objective
from whet.types import Sample

N, H, V = 40, 6, 29
TEMPERATURE = 0.8


def _inputs(dtype: torch.dtype) -> list[Tensor]:
    """Hidden states, weight and bias of the policy, then of the reference."""
    g = torch.Generator().manual_seed(2)
    shapes = ((N, H), (V, H), (V,)) * 2
    values = [torch.randn(*shape, dtype=torch.float64, generator=g).to(dtype) for shape in shapes]
    return [value.requires_grad_(i < 3) for i, value in enumerate(values)]


def _plain(inputs: list[Tensor], temperature: float, softcap: float | None) -> Tensor:
    def log_p(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        logits = hidden @ weight.t() + bias
        if softcap is not None:
            logits = softcap * torch.tanh(logits / softcap)
        return torch.log_softmax(logits / temperature, dim=-1)

    p, q = log_p(*inputs[:3]), log_p(*inputs[3:])
    return (p.exp() * (p - q)).sum(dim=-1)


@pytest.mark.parametrize("chunk", [V, 2 * 17 * V, 2**24])
@pytest.mark.parametrize(("temperature", "softcap"), [(1.0, None), (0.7, None), (1.3, 2.0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_value_and_gradient(
    dtype: torch.dtype, temperature: float, softcap: float | None, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_probs, "_CHUNK_ELEMENTS", chunk)
    inputs, exact = _inputs(dtype), _inputs(torch.float64)
    ours = full_kl(inputs[0], Head(*inputs[1:3], softcap), inputs[3], Head(*inputs[4:], softcap), temperature)
    expected = _plain(exact, temperature, softcap)
    tolerance = {"atol": 3e-5, "rtol": 3e-5} if dtype == torch.float32 else {"atol": 1e-12, "rtol": 1e-12}
    assert ours.dtype == dtype
    assert torch.all(ours > 0)
    torch.testing.assert_close(ours.double(), expected, **tolerance)
    scale = torch.linspace(-1, 2, N, dtype=torch.float64)
    grads = torch.autograd.grad((ours * scale.to(dtype)).sum(), inputs[:3])
    for grad, reference in zip(grads, torch.autograd.grad((expected * scale).sum(), exact[:3])):
        torch.testing.assert_close(grad.double(), reference, **tolerance)


def test_logits_are_not_kept_for_the_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_probs, "_CHUNK_ELEMENTS", 2 * 16 * V)
    inputs, kept = _inputs(torch.float32), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.shape) or t, lambda t: t):
        kl = full_kl(inputs[0], Head(*inputs[1:3], None), inputs[3], Head(*inputs[4:], None), 1.0)
    assert kl.requires_grad
    assert not [shape for shape in kept if shape[-1:] == (V,) and len(shape) == 2]


def _reference(dtype: torch.dtype) -> tuple[LocalReference, PreTrainedModel]:
    """A model near the policy, and the same with transformers' own attention."""
    models = [tiny_llama(implementation, dtype) for implementation in ("whet", "sdpa")]
    for model in models:
        g = torch.Generator().manual_seed(8)
        with torch.no_grad():
            for p in model.parameters():
                p += 0.05 * torch.randn(p.shape, generator=g).to(dtype)
    return LocalReference(models[0], Config().worker.actor, TEMPERATURE, 50), models[1]


def _config() -> Config:
    kl = {"algorithm.kl_penalty": "full", "algorithm.kl_coef": 0.3, "algorithm.use_kl_loss": True}
    return with_values(Config(), {"data.max_response_length": 16, **kl})


def _expected(model: PreTrainedModel, reference: PreTrainedModel, samples: list[Sample]) -> list[Tensor]:
    """KL at each token of each sample, one padded-free pass a sample through transformers' own attention."""
    rows = []
    for s in samples:
        ids = torch.tensor([s.prompt.ids + s.ids])
        p, q = (
            torch.log_softmax(m(ids).logits[0, len(s.prompt.ids) - 1 : -1] / TEMPERATURE, -1)
            for m in (model, reference)
        )
        rows.append((p.exp() * (p - q)).sum(-1))
    return rows


@pytest.mark.parametrize(("share", "tokens"), [(True, 10_000), (True, 25), (False, 1)])
def test_the_term_of_the_loss_and_its_gradient(share: bool, tokens: int) -> None:
    samples, config = batch(seed=3), _config()
    reference, plain_reference = _reference(torch.float64)
    experience, _ = make_experience(samples, sampler_log_probs(samples), None, config.algorithm)
    experience.advantages_BT.zero_()  # leaves the KL term alone
    model, plain = tiny_llama("whet", torch.float64), tiny_llama("sdpa", torch.float64)
    loss_of = objective(experience, config).begin(list(range(len(samples))), torch.Tensor)
    total = 0.0
    for rows in micro_batches(samples, share, tokens, 0):
        scored = score(model, [samples[i] for i in rows], TEMPERATURE, share)
        loss, _ = loss_of.loss(replace(scored, reference=reference), rows)
        loss.backward()
        total += float(loss.detach())
    masks = [torch.tensor(s.mask).bool() for s in samples]
    kl = torch.cat([row[mask] for row, mask in zip(_expected(plain, plain_reference, samples), masks)])
    expected = 0.3 * kl.mean()
    expected.backward()
    assert total == pytest.approx(float(expected.detach()), rel=1e-9)
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert float((ours.grad - theirs.grad).norm()) <= 1e-9 * float(theirs.grad.norm())


def test_the_penalty_in_the_reward() -> None:
    samples, config = batch(seed=4), with_values(_config(), {"algorithm.use_kl_loss": False})
    reference, plain_reference = _reference(torch.float32)
    learner = LocalLearner(tiny_llama("whet"), config.worker.actor, TEMPERATURE, 10, Budget(40, 40))
    learner.reference = reference
    kl_BT = learner.full_kl(samples)
    with torch.no_grad():
        expected = pad([row.tolist() for row in _expected(tiny_llama("sdpa"), plain_reference, samples)])
    torch.testing.assert_close(kl_BT, expected, atol=1e-5, rtol=1e-4)
    old = sampler_log_probs(samples)
    _, metrics = make_experience(samples, old, None, config.algorithm, {"full_kl": kl_BT})
    mask = pad([s.mask for s in samples])
    assert metrics["actor/reward_kl"] == pytest.approx(float(((kl_BT * mask).sum(1) / mask.sum(1)).mean()), rel=1e-5)


def test_no_distance_from_itself() -> None:
    samples = batch(seed=5)
    config = Config().worker.actor
    learner = LocalLearner(tiny_llama("whet"), config, TEMPERATURE, 10, Budget(40, 40))
    learner.reference = LocalReference(tiny_llama("whet"), config, TEMPERATURE, 40)
    kl_BT = learner.full_kl(samples)
    torch.testing.assert_close(kl_BT, torch.zeros_like(kl_BT), atol=1e-6, rtol=0)


def test_entropy_terms_and_coefficients_of_a_step() -> None:
    samples, config = batch(seed=6), Config()
    experience, _ = make_experience(samples, sampler_log_probs(samples), None, config.algorithm)
    scored = score(tiny_llama("whet", torch.float64), samples, TEMPERATURE, True)
    mask = pad([s.mask for s in samples]).double()
    rows = list(range(len(samples)))

    def loss_and_metrics(coefficients: Coefficients | None = None) -> tuple[float, dict[str, float]]:
        loss, metrics = objective(experience, config, coefficients).begin(rows, torch.Tensor).loss(scored, rows)
        return float(loss.detach()), {name: float(value) for name, value in metrics.items()}

    plain, without = loss_and_metrics()
    assert not {"entropy_loss", "entropy_penalty"} & without.keys()
    entropy = float((scored.entropy_BT.detach() * mask).sum() / mask.sum())
    config = with_values(config, {"worker.actor.entropy_coeff": 0.1})
    assert loss_and_metrics()[0] == pytest.approx(plain - 0.1 * entropy)
    loss, metrics = loss_and_metrics(Coefficients(kl=0.0, entropy=0.02))  # a controller's, not the config's
    assert loss == pytest.approx(plain - 0.02 * entropy)
    assert metrics["entropy_loss"] == pytest.approx(entropy)
    config = with_values(config, {"worker.actor.entropy_coeff": 0.0, "algorithm.use_entropy_penalty": True})
    loss, metrics = loss_and_metrics()
    surprise = float((-scored.log_probs_BT.detach() * mask).sum() / mask.sum())
    assert loss == pytest.approx(plain + 0.06 * surprise)
    assert metrics["entropy_penalty"] == pytest.approx(surprise)
