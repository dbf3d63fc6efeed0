"""The gradient of the whole objective is the same however the mini-batch is cut, packed and recomputed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from learn.samples import batch, sample
from tiny_models import tiny_llama
from torch import Tensor
from transformers import PreTrainedModel

from whet.config import Config, with_values
from whet.config.schema.model import LoraConfig
from whet.learn.packing import pad
from whet.learn.partition import micro_batches
from whet.learn.scoring import score, score_all
from whet.model.lora import add_adapters
from whet.training.experience import Experience, make_experience, sampler_log_probs
from whet.training.objective import objective
from whet.types import Prompt, Sample

TEMPERATURE = 0.8
MODES = ("token", "seq", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm")
Cuts = tuple[tuple[int | None, int], ...]  # the tokens or the samples of a micro-batch
CUTS: Cuts = ((1, 0), (20, 0), (37, 0), (10_000, 0), (None, 1), (None, 5), (None, 12))
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
# Every cut in both types, and every mode: how a loss is averaged and where a batch is cut meet in the weights alone.
CASES = [(MODES[0], dtype, CUTS) for dtype in TOLERANCE] + [(mode, torch.float64, CUTS[1::4]) for mode in MODES[1:]]


def _config(mode: str) -> Config:
    kl = {"algorithm.use_kl_loss": True, "algorithm.kl_penalty": "low_var_kl", "algorithm.kl_coef": 0.3}
    return with_values(Config(), {"worker.actor.loss_avg_mode": mode, "data.max_response_length": 16, **kl})


def _experience(samples: list[Sample], config: Config) -> Experience:
    old = sampler_log_probs(samples)
    ref = old - 0.2 * torch.sin(torch.arange(old.numel())).view_as(old)
    experience, _ = make_experience(samples, old, ref, config.algorithm)
    return experience


def _ours(
    model: PreTrainedModel, samples: list[Sample], config: Config, share: bool, tokens: int | None, size: int
) -> tuple[float, list[Tensor]]:
    def current_log_probs() -> Tensor:
        return score_all(model, samples, TEMPERATURE, config.worker.actor, tokens)

    loss_of = objective(_experience(samples, config), config).begin(list(range(len(samples))), current_log_probs)
    model.zero_grad(set_to_none=True)
    total = 0.0
    for rows in micro_batches(samples, share, tokens, size):
        loss, _ = loss_of.loss(score(model, [samples[i] for i in rows], TEMPERATURE, share), rows)
        loss.backward()
        total += float(loss.detach())
    return total, [p.grad.clone() for p in model.parameters() if p.requires_grad]


def _padded(model: PreTrainedModel, samples: list[Sample], config: Config) -> tuple[float, list[Tensor]]:
    """One padded forward pass through transformers' own attention, and the objective written out."""
    experience = _experience(samples, config)
    longest = max(len(s.prompt.ids) + len(s.ids) for s in samples)
    rows = [s.prompt.ids + s.ids for s in samples]
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    present = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    model.zero_grad(set_to_none=True)
    log_p = torch.log_softmax(model(ids, attention_mask=present).logits / TEMPERATURE, dim=-1)
    terms, lengths = [], []
    for i, s in enumerate(samples):
        P, L = len(s.prompt.ids), len(s.ids)
        new = log_p[i, torch.arange(P - 1, P + L - 1), torch.tensor(s.ids)]
        keep = torch.tensor(s.mask).bool()
        old, ref = experience.old_log_probs_BT[i, :L], experience.ref_log_probs_BT[i, :L]
        A = experience.advantages_BT[i, :L].to(new.dtype)
        ratio = (new - old).exp()
        pg = torch.maximum(-A * ratio, -A * ratio.clamp(0.8, 1.3))
        pg = torch.where(A < 0, torch.minimum(pg, -3.0 * A), pg)
        u = ref - new
        kl = (u.exp() - u - 1).clamp(max=10)
        terms.append((pg + 0.3 * kl)[keep])
        lengths.append(int(keep.sum()))
    sums = torch.stack([t.sum() for t in terms])
    B, per_row = len(samples), torch.tensor(lengths)
    loss = {
        "token": sums.sum() / per_row.sum(),
        "seq": (sums / per_row).sum() / B,
        "token-sum": sums.sum(),
        "seq-mean-token-sum": sums.sum() / B,
        "seq-mean-token-sum-norm": sums.sum() / B / 16,
    }[config.worker.actor.loss_avg_mode]
    loss.backward()
    return float(loss.detach()), [p.grad.clone() for p in model.parameters() if p.requires_grad]


def _same(ours: tuple[float, list[Tensor]], expected: tuple[float, list[Tensor]], tolerance: float) -> None:
    assert ours[0] == pytest.approx(expected[0], rel=tolerance, abs=tolerance)
    for grad, reference in zip(ours[1], expected[1], strict=True):
        assert float((grad - reference).norm()) <= tolerance * float(reference.norm())


@pytest.mark.parametrize(("mode", "dtype", "cuts"), CASES)
def test_every_cut_gives_the_gradient_of_a_padded_pass(mode: str, dtype: torch.dtype, cuts: Cuts) -> None:
    samples, config = batch(), _config(mode)
    expected = _padded(tiny_llama("sdpa", dtype), samples, config)
    model = tiny_llama("whet", dtype)
    for share in (True, False):
        for tokens, size in cuts:
            _same(_ours(model, samples, config, share, tokens, size), expected, TOLERANCE[dtype])


def _adapted_llama(implementation: str, dtype: torch.dtype) -> PreTrainedModel:
    model = tiny_llama(implementation, dtype)
    add_adapters(model, LoraConfig(rank=4, alpha=8), "base", seed=1)
    torch.manual_seed(7)
    for p in model.parameters():
        if p.requires_grad:
            torch.nn.init.normal_(p, std=0.2)
    return model


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_every_cut_gives_the_gradient_of_adapters(dtype: torch.dtype, tolerance: float) -> None:
    samples, config = batch(), _config("token")
    expected = _padded(_adapted_llama("sdpa", dtype), samples, config)
    assert len(expected[1]) == 28
    model = _adapted_llama("whet", dtype)
    for share in (True, False):
        for tokens, size in ((1, 0), (20, 0), (10_000, 0), (None, 1), (None, 5)):
            _same(_ours(model, samples, config, share, tokens, size), expected, tolerance)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    _same(_ours(model, samples, config, True, 30, 0), expected, tolerance)


@pytest.mark.parametrize("share", [True, False])
def test_gradient_checkpointing(share: bool) -> None:
    samples, config = batch(seed=4), _config("token")
    model = tiny_llama("whet", torch.float64)
    expected = _ours(model, samples, config, share, 30, 0)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    assert model.is_gradient_checkpointing
    _same(_ours(model, samples, config, share, 30, 0), expected, 1e-12)


def test_an_aborted_sample_changes_nothing_for_the_others() -> None:
    samples, config = batch(prompts=2), _config("token")
    prompt = Prompt("lonely", [1, 2], "")
    more = [*samples, sample(prompt, [], group=9), sample(prompt, [], group=9)]
    model = tiny_llama("whet", torch.float64)
    expected = _ours(model, samples, config, True, 20, 0)
    for share, tokens, size in ((True, 20, 0), (False, 1, 0), (True, None, 1)):
        _same(_ours(model, more, config, share, tokens, size), expected, 1e-10)


def test_log_probs_and_entropies_of_each_sample() -> None:
    samples = batch(seed=2)
    model, plain = tiny_llama("whet", torch.float64), tiny_llama("sdpa", torch.float64)
    with torch.no_grad():
        scored = score(model, samples, TEMPERATURE, True)
        log_probs, entropy = scored.log_probs_BT, scored.entropy_BT
        for i, s in enumerate(samples):
            logits = plain(torch.tensor([s.prompt.ids + s.ids])).logits[0, len(s.prompt.ids) - 1 : -1] / TEMPERATURE
            log_p = torch.log_softmax(logits, -1)
            L = len(s.ids)
            torch.testing.assert_close(log_probs[i, :L], log_p[torch.arange(L), torch.tensor(s.ids)])
            torch.testing.assert_close(entropy[i, :L], -(log_p.exp() * log_p).sum(-1))
            assert torch.all(log_probs[i, L:] == 0)
            assert torch.all(entropy[i, L:] == 0)


def test_metrics_add_up_over_micro_batches() -> None:
    samples, config = batch(seed=5), _config("seq")
    model = tiny_llama("whet", torch.float64)

    def current_log_probs() -> Tensor:
        return score_all(model, samples, TEMPERATURE, config.worker.actor, tokens)

    loss_of = objective(_experience(samples, config), config).begin(list(range(len(samples))), current_log_probs)
    totals = []
    for tokens in (10_000, 25):
        sums: dict[str, float] = {}
        for rows in micro_batches(samples, True, tokens, 0):
            scored = score(model, [samples[i] for i in rows], TEMPERATURE, True)
            for name, value in loss_of.loss(scored, rows)[1].items():
                sums[name] = sums.get(name, 0.0) + float(value)
        totals.append(sums)
    assert totals[0] == pytest.approx(totals[1], rel=1e-5)
    assert {"pg_loss", "kl_loss", "entropy", "ppo_kl"} <= totals[0].keys()


def test_mini_batches_have_a_normaliser_of_their_own() -> None:
    samples, config = batch(seed=6), _config("token")
    whole = objective(_experience(samples, config), config)
    model = tiny_llama("whet", torch.float64)
    mini = [3, 4, 5]
    chosen = [replace(samples[i]) for i in mini]
    scored = score(model, chosen, TEMPERATURE, True)
    loss, metrics = whole.begin(mini, scored.log_probs_BT.detach).loss(scored, [0, 1, 2])
    entropy, mask = scored.entropy_BT.detach(), pad([s.mask for s in chosen])
    assert float(metrics["entropy"]) == pytest.approx(float((entropy * mask).sum() / mask.sum()), rel=1e-6)
    assert torch.isfinite(loss)
