"""Learning with adapters: the base never moves, its optimizer state does not exist, and it is the reference."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from learn.objectives import FunctionObjective
from learn.samples import batch
from tiny_models import tiny_llama, tiny_tokenizer
from transformers import PreTrainedModel

from whet.config.schema.actor import ActorConfig
from whet.config.schema.model import LoraConfig, OptimConfig
from whet.learn.kahan import KahanAdamW
from whet.learn.learner import LocalLearner
from whet.learn.partition import Budget
from whet.learn.reference import LocalReference
from whet.learn.scoring import score
from whet.model.lora import add_adapters, load_adapters


def _adapted(std: float = 0.0, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    model = tiny_llama("whet", dtype)
    add_adapters(model, LoraConfig(rank=4, alpha=8), "base", seed=1)
    torch.manual_seed(7)
    for p in model.parameters():
        if p.requires_grad and std:
            torch.nn.init.normal_(p, std=std)
    return model


def _config() -> ActorConfig:
    return ActorConfig(optim=OptimConfig(lr=0.01, weight_decay=0.1))


def _learner(model: PreTrainedModel) -> LocalLearner:
    return LocalLearner(model, _config(), temperature=1.0, total_steps=10, budget=Budget(40, 80))


LIKELIHOOD = FunctionObjective(lambda scored, rows, mini: (-scored.log_probs_BT.mean(), {}))


def test_an_update_moves_adapters_and_nothing_else() -> None:
    samples, learner = batch(), _learner(_adapted())
    first = {name: p.detach().clone() for name, p in learner.model.named_parameters()}
    before = learner.log_probs(samples).sum()
    for step in (1, 2, 3):
        metrics = learner.update(samples, LIKELIHOOD, step=step, mini_batch=len(samples))
    assert metrics["actor/grad_norm"] > 0
    assert learner.log_probs(samples).sum() > before
    moved = {name for name, p in learner.model.named_parameters() if not torch.equal(p, first[name])}
    assert moved == {name for name in first if ".lora_" in name}
    assert len(learner.optimizer.state) == len(moved)


def test_saved_and_loaded_it_goes_on_to_the_bit(tmp_path: Path) -> None:
    samples, learner = batch(), _learner(_adapted())
    learner.update(samples, LIKELIHOOD, step=1, mini_batch=6)
    learner.save(tmp_path, tiny_tokenizer(), model_only=False)
    assert not (tmp_path / "huggingface").exists()
    model = _adapted()
    load_adapters(model, tmp_path / "lora_adapter")
    again = _learner(model)
    again.load_optimizer(tmp_path)
    for each in (learner, again):
        each.update(samples, LIKELIHOOD, step=2, mini_batch=6)
    assert torch.equal(again.log_probs(samples), learner.log_probs(samples))


def test_the_reference_is_the_policy_without_its_adapters() -> None:
    samples, config = batch(), _config()
    policy = _adapted(std=0.2)
    ours = LocalReference(policy, config, 1.0, 50).log_probs(samples)
    assert torch.equal(ours, LocalReference(tiny_llama("whet"), config, 1.0, 50).log_probs(samples))
    assert (ours - _learner(policy).log_probs(samples)).abs().max() > 0.1


@pytest.mark.parametrize("recompute", [False, True])
def test_full_kl_from_the_reference_in_the_middle_of_a_pass(recompute: bool) -> None:
    """The reference switches adapters off between the policy's forward and backward pass."""
    samples, config, found = batch(), _config(), []
    for shared in (True, False):
        policy = _adapted(std=0.2, dtype=torch.float64)
        reference = LocalReference(policy if shared else tiny_llama("whet", torch.float64), config, 1.0, None)
        if recompute:
            policy.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            policy.train()
        kl_BT = reference.full_kl(score(policy, samples, 1.0, True))
        kl_BT.sum().backward()
        found.append([kl_BT.detach(), *(p.grad for p in policy.parameters() if p.requires_grad)])
    assert len(found[0]) == 29
    assert found[0][0].sum() > 1
    for ours, expected in zip(*found, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)


def test_adapters_in_bf16_are_summed_with_compensation() -> None:
    assert isinstance(_learner(_adapted(dtype=torch.bfloat16)).optimizer, KahanAdamW)
