"""What each rank does in the tests of checkpoints and of weights that leave the ranks."""

from __future__ import annotations

from pathlib import Path

import torch.distributed as dist
from learn.distributed.programs import CPU, Case, layout_of, learner_of, model_of, spread, update
from learn.objectives import FunctionObjective
from learn.samples import batch
from tiny_models import tiny_llama, tiny_tokenizer
from torch import Tensor
from transformers import PreTrainedModel

from whet.config.schema.actor import CriticConfig
from whet.config.schema.model import FSDPConfig
from whet.errors import UserError
from whet.learn.critic import LocalCritic
from whet.learn.full_state import full_weights
from whet.learn.layout import lay_out
from whet.learn.partition import Budget
from whet.learn.ranks import ranks_of
from whet.learn.sharding import load_sharded
from whet.learn.value_head import ValueModel
from whet.model.empty import empty_backbone, empty_model
from whet.model.load import load_backbone, load_model
from whet.model.names import folder_weights


def save(folder: Path, case: Case) -> dict[str, Tensor]:
    """Train two steps, save, and return the weights that one more step leads to."""
    learner = learner_of(model_of(case), case)
    update(learner, case, step=1)
    update(learner, case, step=2)
    if ranks_of(learner.model).is_first:
        folder.mkdir(parents=True)
    learner.save(folder, tiny_tokenizer(), model_only=False)
    update(learner, case, step=3)
    return full_weights(learner.model)


def resumed(folder: Path, case: Case) -> dict[str, Tensor]:
    """The weights after one more step from a checkpoint."""
    learner = learner_of(read(folder, case), case)
    learner.load_optimizer(folder)
    update(learner, case, step=3)
    return full_weights(learner.model)


def copy(folder: Path, into: Path, case: Case) -> None:
    """Read a checkpoint and write it again."""
    learner = learner_of(read(folder, case), case)
    learner.load_optimizer(folder)
    if ranks_of(learner.model).is_first:
        into.mkdir(parents=True)
    learner.save(into, tiny_tokenizer(), model_only=False)


def read(folder: Path, case: Case) -> PreTrainedModel:
    """A checkpoint's weights: by this process, or by the first rank for all."""
    path = str(folder / "huggingface")
    if not dist.is_initialized():
        return load_model(path, case.dtype)
    return load_sharded(
        lambda: load_model(path, case.dtype), lambda: empty_model(path, case.dtype), case.fsdp, layout_of(case), CPU
    )


def no_such_weights(path: str) -> str:
    """What reading a damaged folder says on this rank."""
    fsdp = FSDPConfig()
    try:
        load_sharded(lambda: load_model(path), lambda: empty_model(path), fsdp, lay_out(fsdp, CPU), CPU)
    except UserError as error:
        return str(error)
    return "nothing"


def save_critic(folder: Path) -> Tensor:
    """Values of a critic that is saved after an update."""
    critic = LocalCritic(
        spread(ValueModel(tiny_llama("whet").base_model), FSDPConfig()), CriticConfig(), 10, Budget(40, 40)
    )
    critic.update(batch(), FunctionObjective(lambda values, rows, mini: ((values.sum() - 1.0) / len(mini), {})), 1, 12)
    if ranks_of(critic.model).is_first:
        folder.mkdir(parents=True)
    critic.save(folder, tiny_tokenizer(), model_only=False)
    return critic.values(batch())


def read_critic(folder: Path) -> Tensor:
    """Values of the critic in a folder: read by this process, or by the first rank for all."""
    path = folder / "huggingface"

    def load() -> ValueModel:
        model = ValueModel(load_backbone(str(path)))
        model.load_head(path)
        return model

    fsdp, model = FSDPConfig(), None
    if dist.is_initialized():
        model = load_sharded(load, lambda: ValueModel(empty_backbone(str(path))), fsdp, lay_out(fsdp, CPU), CPU)
    critic = LocalCritic(model or load(), CriticConfig(), 10, Budget(40, 40))
    critic.load_optimizer(folder)
    return critic.values(batch())


def for_engines(tied: bool, tensor: int = 1) -> dict[str, Tensor]:
    """What other engines are given of a sharded model, on every rank."""
    return {name: tensor.clone() for name, tensor in folder_weights(model_of(Case(tied=tied, tensor=tensor)))}
