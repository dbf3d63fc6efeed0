"""What each rank does in the tests of sharded adapters; the same lines run in one process for comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from learn.distributed.programs import CPU, Case, config_of, layout_of, learner_of, spread
from learn.samples import batch
from tiny_models import tiny_model, tiny_tokenizer
from torch import Tensor
from transformers import PreTrainedModel

from whet.config.schema.model import LoraConfig
from whet.learn.full_state import full
from whet.learn.learner import LocalLearner
from whet.learn.reference import LocalReference
from whet.learn.sharding import load_sharded
from whet.model.empty import empty_model
from whet.model.gathering import part
from whet.model.load import load_model
from whet.model.lora import adapter_state, add_adapters, load_adapters, merged_weights
from whet.model.modality import ADAPTER_FOLDER
from whet.model.whole import whole
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.engine import NativeEngine
from whet.training.experience import make_experience, sampler_log_probs
from whet.training.objective import objective
from whet.types import Prompt

LORA = LoraConfig(rank=4, alpha=8)


def adapted(case: Case) -> PreTrainedModel:
    """The tiny model with adapters that have learned something, sharded where there are ranks."""
    model = tiny_model(case.family, case.dtype)
    add_adapters(model, LORA, "base", seed=1)
    torch.manual_seed(7)
    for p in model.parameters():
        if p.requires_grad:
            torch.nn.init.normal_(p, std=0.2)
    return spread(model, case.fsdp, None, case.tensor, case.sequence)


def update(learner: LocalLearner, case: Case, step: int = 1) -> tuple[dict[str, float], Tensor]:
    """One training step whose reference is the policy without its adapters; its metrics and the reference's numbers."""
    config, samples = config_of(case), batch()
    reference = LocalReference(learner.model, config.worker.actor, 0.8, case.tokens)
    old, ref = sampler_log_probs(samples), reference.log_probs(samples)
    experience, _ = make_experience(samples, old, None if case.kl == "full" else ref, config.algorithm)
    learner.reference = reference
    return learner.update(samples, objective(experience, config), step, case.mini_batch), ref


def adapters_of(learner: LocalLearner) -> dict[str, Tensor]:
    """All of the adapters, on every rank."""
    part(learner.model)
    return {name: full(tensor.detach()).clone() for name, tensor in adapter_state(learner.model).items()}


def train(cases: list[Case]) -> list[dict[str, Any]]:
    """Metrics, gradients, adapters, log-probs and samples of a step of every case."""
    found = []
    for case in cases:
        learner = learner_of(adapted(case), case)
        gradients: list[list[Tensor]] = []
        learner.optimizer.register_step_pre_hook(
            lambda optimizer, *_, kept=gradients: kept.append(
                [full(p.grad).clone() for group in optimizer.param_groups for p in group["params"]]
            )
        )
        merged = {name: full(tensor).clone() for name, tensor in merged_weights(learner.model)}  # as it begins
        engine = NativeEngine(learner.model, tiny_tokenizer(), frozenset({1}), 4)
        with whole(learner.model):  # before AdamW has made whole steps out of rounding errors
            samples = engine.generate([Prompt("a", [3, 4, 5], "")], SamplingParams(n=2, max_tokens=6), [7])
        metrics, ref = update(learner, case)
        values = [ref, learner.log_probs(batch())]
        trained = sum(p.requires_grad for p in learner.model.parameters())
        found.append(
            {
                "metrics": metrics,
                "gradients": gradients,
                "adapters": adapters_of(learner),
                "merged": merged,
                "values": values,
                "samples": [s.ids for s in samples],
                "trained": trained,
            }
        )
    return found


def save(folder: Path, case: Case) -> dict[str, Tensor]:
    """Train a step, save, and return the adapters that one more step leads to."""
    learner = learner_of(adapted(case), case)
    update(learner, case, step=1)
    if not dist.is_initialized() or dist.get_rank() == 0:
        folder.mkdir(parents=True)
    learner.save(folder, tiny_tokenizer(), model_only=False)
    update(learner, case, step=2)
    return adapters_of(learner)


def resumed(base: Path, folder: Path, case: Case) -> dict[str, Tensor]:
    """The adapters after one more step from a checkpoint."""

    def load() -> PreTrainedModel:
        model = load_model(str(base), case.dtype)
        add_adapters(model, LORA, "base", seed=2)
        load_adapters(model, folder / ADAPTER_FOLDER)
        return model

    def empty() -> PreTrainedModel:
        model = empty_model(str(base), case.dtype)
        add_adapters(model, LORA, "base", seed=2)
        return model

    model = load_sharded(load, empty, case.fsdp, layout_of(case), CPU) if dist.is_initialized() else load()
    learner = learner_of(model, case)
    learner.load_optimizer(folder)
    update(learner, case, step=2)
    return adapters_of(learner)
