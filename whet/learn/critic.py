"""The value model of PPO in this process: values of the tokens of a batch, and updates towards the returns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from whet.config.schema.actor import CriticConfig
from whet.learn.offload import with_weights_on_device
from whet.learn.partition import Budget
from whet.learn.protocol import Critic, Objective, Progress
from whet.learn.ranks import ranks_of
from whet.learn.scoring import gather
from whet.learn.update import TrainedModel, make_trainable, set_gradient_checkpointing
from whet.learn.value_head import ValueModel
from whet.types import Sample


class LocalCritic(TrainedModel[ValueModel, Tensor], Critic):
    """The value model and its optimizer in this process, whole or one rank's shard of them."""

    config: CriticConfig

    def __init__(self, model: ValueModel, config: CriticConfig, total_steps: int, budget: Budget) -> None:
        make_trainable(model.backbone, config.model, budget)
        super().__init__("critic", model, config, total_steps, budget, config.offload.offload_params)

    def configure(self, config: CriticConfig, budget: Budget) -> None:
        """Continue under another config, with the same weights and optimizer."""
        self.config, self._budget = config, budget
        set_gradient_checkpointing(self.model.backbone, config.model, budget)

    def forward(self, samples: list[Sample]) -> Tensor:
        """Return the values (B, T) of one packed micro-batch, with gradient."""
        return self.model.response_values(samples, self.config.share_prefix)

    def current(self, samples: Sequence[Sample]) -> Tensor:
        """Return values (B, T) under the current weights."""
        return self.values(samples)

    @with_weights_on_device
    @torch.no_grad()
    def values(self, samples: Sequence[Sample]) -> Tensor:
        """Return values (B, T) under the current weights, 0 past the end of a response."""
        size, share = self.config.micro_batch_size_per_device_for_experience, self.config.share_prefix
        return gather(self.model, samples, share, self._budget.tokens_experience, size, self.forward)

    def update(
        self,
        samples: Sequence[Sample],
        objective: Objective[Tensor],
        step: int,
        mini_batch: int,
        progress: Progress | None = None,
    ) -> dict[str, float]:
        """Train on all samples (`TrainedModel.train_on`)."""
        return self.train_on(samples, objective, step, mini_batch, progress)

    @with_weights_on_device
    def save(self, folder: Path, tokenizer: PreTrainedTokenizerBase, model_only: bool) -> None:
        """Write a Hugging Face folder with the value head in it and, unless `model_only`, the optimizer beside it."""
        self.model.save(folder / "huggingface")
        if ranks_of(self.model).is_first:
            tokenizer.save_pretrained(folder / "huggingface")
        if not model_only:
            self.save_optimizer(folder)
