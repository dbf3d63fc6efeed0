"""The value model of PPO: values of the tokens of a batch, and updates towards the returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from whet.config.schema.actor import CriticConfig
from whet.learn.finite import broken_weights
from whet.learn.offload import of_weights, with_weights_on_device
from whet.learn.ranks import ranks_of
from whet.learn.scoring import gather
from whet.learn.updates import Budget, MicroStep, Progress, Updates, make_trainable, recompute_activations
from whet.learn.value_head import ValueModel
from whet.types import Sample

# (values, rows) of a micro-batch -> loss and metrics; rows index the mini-batch it was made for
MicroValueLoss = Callable[[Tensor, list[int]], tuple[Tensor, dict[str, Tensor]]]
# rows of the batch that form a mini-batch -> the loss of its micro-batches
MakeValueLoss = Callable[[list[int]], MicroValueLoss | None]


class Critic:
    """Holds the value model and its optimizer."""

    def __init__(self, model: ValueModel, config: CriticConfig, total_steps: int, budget: Budget) -> None:
        self.model, self.config = model, config
        self.offload = of_weights(model, config.offload.offload_params)
        self._budget = budget
        make_trainable(model.backbone, config.model.enable_gradient_checkpointing, budget)
        self._updates = Updates("critic", model, config, total_steps, budget)
        self.optimizer = self._updates.optimizer

    def configure(self, config: CriticConfig, budget: Budget) -> None:
        """Go on under another config, with the same weights and optimizer."""
        self.config, self._budget = config, budget
        self._updates.configure(config, budget)
        recompute_activations(self.model.backbone, config.model.enable_gradient_checkpointing, budget)

    @with_weights_on_device
    @torch.no_grad()
    def values(self, samples: Sequence[Sample]) -> Tensor:
        """Values (B, T) of the current weights, 0 past the end of a response."""
        size, share = self.config.micro_batch_size_per_device_for_experience, self.config.share_prefix
        tokens = self._budget.tokens_experience
        return gather(self.model, samples, share, tokens, size, lambda micro: self.model.response_values(micro, share))

    @with_weights_on_device
    def update(
        self,
        samples: Sequence[Sample],
        make_loss: MakeValueLoss,
        step: int,
        mini_batch: int,
        progress: Progress | None = None,
    ) -> dict[str, float]:
        """Train on all samples: `ppo_epochs` passes of one optimizer step per `mini_batch` samples."""

        def begin(mini: list[int], fresh: bool) -> MicroStep | None:
            loss_of = make_loss(mini)
            if loss_of is None:
                return None
            return lambda micro, rows: loss_of(self.model.response_values(micro, self.config.share_prefix), rows)

        return self._updates.run(samples, begin, step, mini_batch, progress)

    @with_weights_on_device
    def broken_weights(self) -> list[str]:
        """Names of parameters that are not finite."""
        return broken_weights(self.model)

    @with_weights_on_device
    def save(self, folder: Path, tokenizer: PreTrainedTokenizerBase, model_only: bool) -> None:
        """Write a Hugging Face folder with the value head in it and, unless `model_only`, the optimizer beside it."""
        self.model.save(folder / "huggingface")
        if ranks_of(self.model).is_first:
            tokenizer.save_pretrained(folder / "huggingface")
        if not model_only:
            self._updates.save(folder)

    def load_optimizer(self, folder: Path) -> None:
        """Read back what `save` wrote; the weights are loaded with the model."""
        self._updates.load(folder)
