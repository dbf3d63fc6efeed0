"""Training and sampling with shards and activations in host memory, which stands for the device, too."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch.distributed as dist
from learn.distributed.programs import Case, config_of, model_of, update
from learn.samples import batch
from tiny_models import tiny_tokenizer
from torch import Tensor

from whet.config import with_values
from whet.learn import activations, offload
from whet.learn.full_state import full_weights
from whet.learn.learner import LocalLearner
from whet.learn.partition import Budget
from whet.model.gathering import local
from whet.model.pass_modes import OFFLOADING
from whet.model.whole import whole
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.engine import NativeEngine
from whet.types import Prompt


def held(tensors: Iterable[Tensor]) -> int:
    """Bytes that are on the device now."""
    return sum(local(t.detach()).untyped_storage().nbytes() for t in tensors)


def offloaded(case: Case, wanted: bool, folder: Path) -> dict[str, Any]:
    """Two updates, a saved and restored optimizer and a rollout; what was on the device between them."""
    offload.movable = activations.movable = lambda held: True  # in this process: CPU memory moves to CPU memory
    activations._LEAST = 1
    keys = ("offload.offload_params", "offload.offload_optimizer", "model.enable_activation_offload")
    moved = dict.fromkeys(keys, wanted)
    config = with_values(config_of(case).worker.actor, moved)
    learner = LocalLearner(model_of(case), config, 0.8, total_steps=10, budget=Budget(case.tokens, case.tokens))
    shards = list(learner.model.parameters())
    metrics = [update(learner, case)]
    between = [held(shards), held(offload.optimizer_tensors(learner.optimizer))]
    values = learner.log_probs(batch())
    folder.mkdir(exist_ok=True)
    learner.save(folder, tiny_tokenizer(), model_only=False)
    learner.load_optimizer(folder)
    between.append(held(shards))
    metrics.append(update(learner, case, step=2))
    engine = NativeEngine(learner.model, tiny_tokenizer(), frozenset({1}))
    with ExitStack() as stack:
        with learner.offload.here():
            stack.enter_context(whole(learner.model))
        if not dist.is_initialized():  # nothing was gathered: these are the weights themselves
            stack.enter_context(learner.offload.here())
        else:
            between.append(held(shards))
        samples = engine.generate([Prompt("a", [3, 4, 5], "")], SamplingParams(n=2, max_tokens=8, seed=1), [7])
    with learner.offload.here():
        weights = {name: tensor.clone() for name, tensor in full_weights(learner.model).items()}
    ids = [sample.ids for sample in samples]
    hooks: Any = OFFLOADING.get(learner.model)
    chunks = (hooks.__self__.memory.made, hooks.__self__.memory.used) if hooks else None
    found = {"metrics": metrics, "between": between, "values": values, "ids": ids, "weights": weights}
    return found | {"chunks": chunks}
