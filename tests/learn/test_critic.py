"""The critic: values and their gradient against a plain padded pass, updates, and what is saved of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from learn.objectives import FunctionObjective
from learn.samples import batch, sample
from tiny_models import tiny_llama, tiny_tokenizer
from torch import Tensor
from transformers import AutoModel

from whet.config import Config, with_values
from whet.config.schema.actor import CriticConfig
from whet.learn.critic import LocalCritic
from whet.learn.packing import pad
from whet.learn.partition import Budget, micro_batches
from whet.learn.value_head import ValueModel
from whet.model.load import load_backbone
from whet.training.experience import Experience
from whet.training.values import ValueObjective, value_metrics
from whet.types import Prompt, Sample

MODES = ("token", "seq", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm")
CUTS = ((1, 0), (20, 0), (37, 0), (10_000, 0), (None, 1), (None, 5), (None, 12))


def _model(implementation: str = "whet", dtype: torch.dtype = torch.float32) -> ValueModel:
    """A value model whose head has left its zeros."""
    model = ValueModel(tiny_llama(implementation, dtype).base_model)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        model.head.weight.copy_(torch.randn(model.head.weight.shape, generator=generator) * 0.3)
        model.head.bias.fill_(0.2)
    return model.eval()


def _critic(model: ValueModel | None = None, tokens: int | None = 40, **changes: object) -> LocalCritic:
    config = with_values(CriticConfig(**changes), {"optim.lr": 0.01})
    return LocalCritic(model or _model(), config, total_steps=10, budget=Budget(tokens, tokens))


def _config(mode: str = "token", cliprange: float = 0.3) -> Config:
    critic = {"worker.critic.loss_avg_mode": mode, "worker.critic.cliprange_value": cliprange}
    return with_values(Config(), {**critic, "data.max_response_length": 16})


def _experience(samples: list[Sample]) -> Experience:
    mask = pad([s.mask for s in samples])
    wave = torch.arange(mask.numel(), dtype=torch.float64).view_as(mask)
    return Experience(samples, mask, mask, None, mask, torch.sin(wave), values_BT=0.5 * torch.cos(wave))


def _ours(
    model: ValueModel, samples: list[Sample], config: Config, share: bool, tokens: int | None, size: int
) -> tuple[float, list[Tensor]]:
    experience = _experience(samples)
    loss_of = ValueObjective(experience, experience.values_BT, config).begin(list(range(len(samples))), torch.Tensor)
    model.zero_grad(set_to_none=True)
    total = 0.0
    for rows in micro_batches(samples, share, tokens, size):
        loss, _ = loss_of.loss(model.response_values([samples[i] for i in rows], share), rows)
        loss.backward()
        total += float(loss.detach())
    return total, [p.grad.clone() for p in model.parameters()]


def _padded_values(model: ValueModel, samples: list[Sample]) -> list[Tensor]:
    """Values of each response by one padded pass through transformers' own attention."""
    rows = [s.prompt.ids + s.ids for s in samples]
    longest = max(len(row) for row in rows)
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    present = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    values = model.head(model.backbone(ids, attention_mask=present).last_hidden_state)[..., 0]
    return [values[i, len(s.prompt.ids) - 1 : len(s.prompt.ids) + len(s.ids) - 1] for i, s in enumerate(samples)]


def _padded(model: ValueModel, samples: list[Sample], config: Config) -> tuple[float, list[Tensor]]:
    """The clipped value loss written out."""
    experience, cliprange = _experience(samples), config.worker.critic.cliprange_value
    model.zero_grad(set_to_none=True)
    terms = []
    for i, (s, values) in enumerate(zip(samples, _padded_values(model, samples))):
        L, keep = len(s.ids), torch.tensor(s.mask).bool()
        old, returns = experience.values_BT[i, :L], experience.returns_BT[i, :L]
        near = torch.maximum(torch.minimum(values, old + cliprange), old - cliprange)
        terms.append((0.5 * torch.maximum((values - returns) ** 2, (near - returns) ** 2))[keep])
    sums, lengths = torch.stack([t.sum() for t in terms]), torch.tensor([len(t) for t in terms])
    B = len(samples)
    loss = {
        "token": sums.sum() / lengths.sum(),
        "seq": (sums / lengths).sum() / B,
        "token-sum": sums.sum(),
        "seq-mean-token-sum": sums.sum() / B,
        "seq-mean-token-sum-norm": sums.sum() / B / 16,
    }[config.worker.critic.loss_avg_mode]
    loss.backward()
    return float(loss.detach()), [p.grad.clone() for p in model.parameters()]


def _same(ours: tuple[float, list[Tensor]], expected: tuple[float, list[Tensor]], tolerance: float) -> None:
    assert ours[0] == pytest.approx(expected[0], rel=tolerance, abs=tolerance)
    for grad, reference in zip(ours[1], expected[1], strict=True):
        assert float((grad - reference).norm()) <= tolerance * float(reference.norm())


# Every cut in both types, and every mode: how a loss is averaged and where a batch is cut meet in the weights alone.
CASES = [(MODES[0], torch.float32, 1e-5, CUTS), (MODES[0], torch.float64, 1e-10, CUTS)]
CASES += [(mode, torch.float64, 1e-10, CUTS[1::4]) for mode in MODES[1:]]


@pytest.mark.parametrize(("mode", "dtype", "tolerance", "cuts"), CASES)
def test_every_cut_gives_the_gradient_of_a_padded_pass(
    mode: str, dtype: torch.dtype, tolerance: float, cuts: Sequence[tuple[int | None, int]]
) -> None:
    samples, config = batch(), _config(mode)
    expected = _padded(_model("sdpa", dtype), samples, config)
    model = _model("whet", dtype)
    for share in (True, False):
        for tokens, size in cuts:
            _same(_ours(model, samples, config, share, tokens, size), expected, tolerance)


def test_gradient_checkpointing() -> None:
    samples, config = batch(seed=4), _config()
    model = _model("whet", torch.float64)
    expected = _ours(model, samples, config, True, 30, 0)
    _critic(model)  # its default recomputes
    model.train()
    assert model.backbone.is_gradient_checkpointing
    _same(_ours(model, samples, config, True, 30, 0), expected, 1e-12)


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("tokens", [1, 37, 10_000, None])
def test_values_are_those_of_a_padded_pass(share: bool, tokens: int | None) -> None:
    samples = [*batch(seed=2), sample(Prompt("aborted", [1, 2], ""), [])]
    values = _critic(tokens=tokens, share_prefix=share, micro_batch_size_per_device_for_experience=5).values(samples)
    assert not values.requires_grad
    for i, expected in enumerate(_padded_values(_model("sdpa"), samples[:-1])):
        torch.testing.assert_close(values[i, : len(expected)], expected.detach(), rtol=1e-5, atol=1e-5)
        assert torch.all(values[i, len(expected) :] == 0)
    assert torch.all(values[-1] == 0)


def test_a_fresh_head_gives_zero_and_learns() -> None:
    samples, config = batch(), _config(cliprange=100.0)
    critic = _critic(ValueModel(tiny_llama("whet").base_model), ppo_epochs=4)
    assert torch.all(critic.values(samples) == 0)
    experience = _experience(samples)
    losses = []
    for step in range(1, 11):
        experience.values_BT = critic.values(samples)
        loss = ValueObjective(experience, experience.values_BT, config)
        metrics = critic.update(samples, loss, step, mini_batch=len(samples))
        losses.append(metrics["critic/vf_loss"])
    assert losses[-1] < 0.5 * losses[0]
    explained = value_metrics(critic.values(samples), experience.returns_BT, experience.mask_BT)
    assert explained["critic/vf_explained_var"] > 0.5
    assert {f"critic/{name}" for name in ("vf_loss", "vf_clipfrac", "vpred_mean", "grad_norm", "lr")} <= metrics.keys()
    assert metrics["critic/grad_skipped"] == 0


def test_explained_variance() -> None:
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    returns = torch.tensor([[1.0, 2.0, 99.0], [3.0, 4.0, 5.0]])
    perfect = value_metrics(torch.where(mask.bool(), returns, -7.0), returns, mask)
    assert perfect["critic/vf_explained_var"] == pytest.approx(1.0)
    assert (perfect["critic/values/min"], perfect["critic/values/max"], perfect["critic/values/mean"]) == (1, 5, 3)
    assert value_metrics(torch.zeros(2, 3), returns, mask)["critic/vf_explained_var"] == pytest.approx(0, abs=1e-5)
    assert value_metrics(-returns, returns, mask)["critic/vf_explained_var"] == pytest.approx(-3, abs=1e-4)


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_an_update_that_is_not_finite_is_skipped_and_counted(poison: float) -> None:
    samples, critic = batch(), _critic()
    before = [p.detach().clone() for p in critic.model.parameters()]
    objective = FunctionObjective(lambda values, rows, mini: (poison * values.sum(), {}))
    metrics = critic.update(samples, objective, step=1, mini_batch=6)
    assert metrics["critic/grad_skipped"] == 2
    assert all(torch.equal(a, b) for a, b in zip(before, critic.model.parameters()))


@pytest.mark.parametrize("strategy", ["adamw", "adamw_bf16"])
def test_saved_and_resumed_ends_with_the_same_bits(strategy: str, tmp_path: Path) -> None:
    samples, config = batch(), _config()
    experience = _experience(samples)
    loss = ValueObjective(experience, experience.values_BT, config)
    whole = _critic()
    whole = LocalCritic(whole.model, with_values(whole.config, {"optim.strategy": strategy}), 10, Budget(40, 80))
    for step in (1, 2):
        whole.update(samples, loss, step, mini_batch=6)
    whole.save(tmp_path, tiny_tokenizer(), model_only=False)
    model = ValueModel(load_backbone(str(tmp_path / "huggingface")))
    model.load_head(tmp_path / "huggingface")
    resumed = LocalCritic(model, whole.config, 10, Budget(40, 80))
    resumed.load_optimizer(tmp_path)
    assert torch.equal(whole.values(samples), resumed.values(samples))
    for critic in (whole, resumed):
        critic.update(samples, loss, 3, mini_batch=6)
    assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True))


def test_the_folder_holds_backbone_and_head_and_model_only_no_optimizer(tmp_path: Path) -> None:
    critic = _critic()
    critic.save(tmp_path, tiny_tokenizer(), model_only=True)
    assert not (tmp_path / "optimizer.pt").exists()
    loaded = AutoModel.from_pretrained(tmp_path / "huggingface")
    saved = dict(critic.model.backbone.named_parameters())
    assert all(torch.equal(p, saved[name]) for name, p in loaded.named_parameters())
    again = ValueModel(load_backbone(str(tmp_path / "huggingface")))
    again.load_head(tmp_path / "huggingface")
    assert torch.equal(again.head.weight, critic.model.head.weight)


def test_the_head_of_a_bf16_backbone_is_fp32() -> None:
    model = ValueModel(tiny_llama("whet", torch.bfloat16).base_model)
    assert {p.dtype for p in model.head.parameters()} == {torch.float32}
    assert model.backbone.dtype == torch.bfloat16
