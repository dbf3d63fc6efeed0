from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from learn.objectives import FunctionLoss, FunctionObjective
from learn.samples import batch, set_log_probs
from tiny_models import tiny_llama, tiny_tokenizer
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM

from whet.config import with_values
from whet.config.schema.actor import ActorConfig
from whet.config.schema.model import OptimConfig
from whet.learn.learner import LocalLearner
from whet.learn.partition import Budget
from whet.learn.reference import LocalReference
from whet.learn.scoring import Scored
from whet.learn.update import TrainedModel
from whet.model.load import load_model
from whet.types import Sample


def _learner(config: ActorConfig, dtype: torch.dtype = torch.float32) -> LocalLearner:
    return LocalLearner(tiny_llama("whet", dtype), config, temperature=1.0, total_steps=10, budget=Budget(40, 80))


def _config(lr: float = 0.01, epochs: int = 1, max_norm: float = 1.0, strategy: str = "adamw") -> ActorConfig:
    return ActorConfig(ppo_epochs=epochs, max_grad_norm=max_norm, optim=OptimConfig(lr=lr, strategy=strategy))


def _likelihood(samples: list[Sample], scale: float = 1.0) -> FunctionObjective:
    """A loss that raises the log-probs of the samples."""

    def nll(scored: Scored, rows: list[int], mini: list[int]) -> tuple[Tensor, dict[str, Tensor]]:
        loss = -scale * scored.log_probs_BT.sum() / sum(len(samples[i].ids) for i in mini)
        return loss, {"nll": loss.detach()}

    return FunctionObjective(nll)


def _weights(learner: LocalLearner) -> list[Tensor]:
    return [p.detach().clone() for p in learner.model.parameters()]


def test_an_update_raises_what_it_was_asked_to_raise() -> None:
    samples, learner = batch(), _learner(_config())
    before = learner.log_probs(samples).sum()
    metrics = learner.update(samples, _likelihood(samples), step=1, mini_batch=len(samples))
    assert learner.log_probs(samples).sum() > before
    assert metrics["actor/nll"] == pytest.approx(-float(before) / sum(len(s.ids) for s in samples), rel=1e-5)
    assert metrics["actor/lr"] == 0.01
    assert metrics["actor/grad_skipped"] == 0
    assert not learner.model.training


@pytest.mark.parametrize(("epochs", "mini_batch", "steps"), [(1, 12, 1), (1, 3, 4), (1, 5, 3), (2, 6, 4), (3, 12, 3)])
def test_one_optimizer_step_per_mini_batch_and_epoch(epochs: int, mini_batch: int, steps: int) -> None:
    samples, learner = batch(), _learner(_config(epochs=epochs))
    seen: list[int] = []
    learner.update(samples, _likelihood(samples), step=1, mini_batch=mini_batch, progress=seen.append)
    assert {float(s["step"]) for s in learner.optimizer.state.values()} == {steps}
    assert sum(seen) == epochs * len(samples)


def test_mini_batches_are_consecutive_rows() -> None:
    samples, learner, minis = batch(), _learner(_config()), []

    class Noted(FunctionObjective):
        def begin(self, rows: list[int], current: Any) -> FunctionLoss:
            minis.append(rows)
            return super().begin(rows, current)

    learner.update(samples, Noted(_likelihood(samples).function), step=1, mini_batch=5)
    assert minis == [list(range(5)), list(range(5, 10)), [10, 11]]


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_an_update_that_is_not_finite_is_skipped_and_counted(poison: float) -> None:
    samples, learner = batch(), _learner(_config())
    weights = _weights(learner)
    metrics = learner.update(samples, _likelihood(samples, poison), step=1, mini_batch=6)
    assert metrics["actor/grad_skipped"] == 2
    assert "actor/grad_norm" not in metrics
    assert all(torch.equal(a, b) for a, b in zip(weights, learner.model.parameters()))
    assert not learner.optimizer.state  # no step counted, no moment poisoned
    after = learner.update(samples, _likelihood(samples), step=2, mini_batch=6)
    assert after["actor/grad_skipped"] == 0
    fresh = _learner(_config())
    fresh.update(samples, _likelihood(samples), step=2, mini_batch=6)
    assert all(torch.equal(a, b) for a, b in zip(fresh.model.parameters(), learner.model.parameters()))


def test_gradients_are_clipped_to_the_norm() -> None:
    samples = batch()
    norms, moments = [], []
    for max_norm in (1e9, 0.05):
        learner = _learner(_config(max_norm=max_norm))
        norms.append(learner.update(samples, _likelihood(samples), step=1, mini_batch=12)["actor/grad_norm"])
        # The first moment after one step is 0.1 times the gradient that the optimizer saw.
        first = torch.cat([s["exp_avg"].flatten() for s in learner.optimizer.state.values()])
        moments.append(float(first.norm()) * 10)
    assert norms[0] == pytest.approx(norms[1])  # the norm before clipping is what is logged
    assert norms[0] > 0.05
    assert moments == pytest.approx([norms[0], 0.05], rel=1e-3)


def test_the_learning_rate_follows_the_step() -> None:
    config = with_values(_config(lr=0.01), {"optim.lr_warmup_steps": 4})
    samples, learner = batch(prompts=1), _learner(config)
    rates = [learner.update(samples, _likelihood(samples), step, 12)["actor/lr"] for step in (1, 2, 4, 5)]
    assert rates == pytest.approx([0.0025, 0.005, 0.01, 0.01])


def test_the_gap_to_the_sampler_is_measured_before_the_first_step() -> None:
    samples, learner = batch(), _learner(_config(epochs=2))
    log_probs = learner.log_probs(samples)
    for i, s in enumerate(samples):
        own = log_probs[i, : len(s.ids)].tolist()
        set_log_probs(s, [p if wrote else float("nan") for p, wrote in zip(own, s.mask)])  # no sampler wrote the others
    samples[0].segments[0].log_probs[0] += 0.5
    metrics = learner.update(samples, _likelihood(samples), step=1, mini_batch=12)
    assert metrics["rollout/log_prob_diff_max"] == pytest.approx(0.5, abs=1e-5)
    assert metrics["rollout/log_prob_diff_mean"] == pytest.approx(0.5 / sum(sum(s.mask) for s in samples), abs=1e-5)


def test_dropout_is_off_while_training() -> None:
    samples = batch()
    losses = []
    for _ in range(2):
        learner = _learner(_config())
        learner.model.train()
        losses.append(learner.update(samples, _likelihood(samples), step=1, mini_batch=12)["actor/nll"])
    assert losses[0] == losses[1]


@pytest.mark.parametrize("strategy", ["adamw", "adamw_bf16"])
def test_saved_and_resumed_ends_with_the_same_bits(strategy: str, tmp_path: Path) -> None:
    samples, config = batch(), _config(strategy=strategy)
    whole = _learner(config)
    for step in (1, 2):
        whole.update(samples, _likelihood(samples), step, mini_batch=6)
    whole.save(tmp_path, tiny_tokenizer(), model_only=False)
    resumed = LocalLearner(load_model(str(tmp_path / "huggingface")), config, 1.0, 10, Budget(40, 80))
    resumed.load_optimizer(tmp_path)
    for learner in (whole, resumed):
        learner.update(samples, _likelihood(samples), 3, mini_batch=6)
    assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), resumed.model.parameters()))


def test_model_only_saves_no_optimizer(tmp_path: Path) -> None:
    learner = _learner(_config())
    learner.save(tmp_path, tiny_tokenizer(), model_only=True)
    assert not (tmp_path / "optimizer.pt").exists()
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "huggingface")
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), learner.model.parameters()))


def test_the_reference_stays_what_it_was() -> None:
    samples, learner = batch(), _learner(_config())
    reference = LocalReference(tiny_llama("whet"), ActorConfig(), temperature=1.0, max_tokens=30)
    before = reference.log_probs(samples)
    torch.testing.assert_close(before, learner.log_probs(samples))
    learner.update(samples, _likelihood(samples), step=1, mini_batch=12)
    assert torch.equal(before, reference.log_probs(samples))
    assert not torch.allclose(before, learner.log_probs(samples))


class _Reads(TorchDispatchMode):
    """Counts how often a number is read from a tensor, for which a GPU would be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


class _SumOfParameters(TrainedModel[nn.Module, Tensor]):
    """A forward pass that reads nothing."""

    def forward(self, samples: list[Sample]) -> Tensor:
        return torch.stack([p.sum() for p in self.model.parameters()]).sum()

    def current(self, samples: Any) -> Tensor:
        raise AssertionError("no loss asks for it")


def test_numbers_are_read_once_per_mini_batch_however_it_is_cut() -> None:
    samples = batch()
    counts, metrics = [], []
    for tokens in (15, 1000):
        model = tiny_llama("whet")
        trained = _SumOfParameters("actor", model, _config(), 10, Budget(tokens, tokens), offload_weights=False)

        def share(total: Tensor, rows: list[int], mini: list[int]) -> tuple[Tensor, dict[str, Tensor]]:
            loss = total * len(rows)
            return loss, {"rows": torch.tensor(float(len(rows))), "loss": loss.detach()}

        with _Reads() as reads:
            metrics.append(trained.train_on(samples, FunctionObjective(share), step=1, mini_batch=6))
        counts.append(reads.count)
    assert counts[0] == counts[1]
    assert metrics[0]["actor/rows"] == 6
    assert metrics[0] == pytest.approx(metrics[1], rel=1e-5)


@pytest.mark.skipif(not hasattr(Tensor, "grad_dtype"), reason="torch before 2.11 keeps gradients in the weights' dtype")
def test_bf16_weights_gather_fp32_gradients() -> None:
    samples, learner, seen = batch(), _learner(_config(), torch.bfloat16), set()
    for p in learner.model.parameters():
        p.register_post_accumulate_grad_hook(lambda p: seen.add(p.grad.dtype))
    with torch.backends.mkldnn.flags(enabled=False):  # some CPUs promise bf16 products that they do not have
        before = learner.log_probs(samples).sum()
        learner.update(samples, _likelihood(samples), step=1, mini_batch=len(samples))
        assert learner.log_probs(samples).sum() > before
    assert seen == {torch.float32}


def test_gradient_checkpointing_by_config_and_by_budget() -> None:
    for wanted, planned, expected in [
        (True, False, True),
        (False, True, False),
        (None, True, True),
        (None, False, False),
    ]:
        config = with_values(_config(), {"model.enable_gradient_checkpointing": wanted})
        budget = Budget(40, 80, recompute=planned)
        learner = LocalLearner(tiny_llama("whet"), config, temperature=1.0, total_steps=10, budget=budget)
        assert learner.model.is_gradient_checkpointing is expected
    learner.configure(config, 1.0, Budget(40, 80, recompute=True))  # longer samples in another stage
    assert learner.model.is_gradient_checkpointing
    learner.configure(config, 1.0, Budget(40, 80, recompute=False))
    assert not learner.model.is_gradient_checkpointing
