"""The policy being trained: one update from a batch of scored samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from whet.config.schema.actor import ActorConfig
from whet.learn.finite import broken_weights
from whet.learn.full_state import save_adapters, save_weights
from whet.learn.masked_kl import masked_kl_all
from whet.learn.offload import of_weights, with_weights_on_device
from whet.learn.packing import pad, to_device
from whet.learn.ranks import Ranks, ranks_of
from whet.learn.reference import Reference
from whet.learn.scoring import Scored, score, score_all
from whet.learn.sum_pi_squared import sum_pi_squared_all
from whet.learn.updates import (
    Budget,
    MicroStep,
    Progress,
    Updates,
    largest,
    make_trainable,
    read,
    recompute_activations,
)
from whet.model import lora
from whet.types import Sample

# a micro-batch after its forward pass, and its rows of the mini-batch -> loss and metrics
MicroLoss = Callable[[Scored, list[int]], tuple[Tensor, dict[str, Tensor]]]
# rows of the batch that form a mini-batch, and a pass over it for its current log-probs (B, T) without gradient, which
# only losses that look at the whole mini-batch ask for -> the loss of its micro-batches, or None where nothing is left
MakeLoss = Callable[[list[int], Callable[[], Tensor]], MicroLoss | None]


class Learner:
    """Holds the trained weights and their optimizer; knows nothing of where samples come from."""

    def __init__(
        self,
        model: PreTrainedModel,
        config: ActorConfig,
        temperature: float,
        total_steps: int,
        budget: Budget,
        shared: bool = False,
    ) -> None:
        """Weights that are `shared` with an engine, which reads them at any time, never wait in host memory."""
        self.model, self.config = model, config
        self.offload = of_weights(model, config.offload.offload_params and not shared)
        self._temperature, self._budget = temperature, budget
        make_trainable(model, config.model.enable_gradient_checkpointing, budget)
        self._updates = Updates("actor", model, config, total_steps, budget)
        self.optimizer = self._updates.optimizer

    def configure(self, config: ActorConfig, temperature: float, budget: Budget) -> None:
        """Go on under another config, with the same weights and optimizer."""
        self.config, self._temperature, self._budget = config, temperature, budget
        self._updates.configure(config, budget)
        recompute_activations(self.model, config.model.enable_gradient_checkpointing, budget)

    @with_weights_on_device
    def log_probs(self, samples: Sequence[Sample]) -> Tensor:
        """Log-probs (B, T) of the current weights, without gradient."""
        return score_all(self.model, samples, self._temperature, self.config, self._budget.tokens_experience)

    @with_weights_on_device
    def full_kl(self, samples: Sequence[Sample], reference: Reference) -> Tensor:
        """Exact KL (B, T) of the current weights from the reference, without gradient."""
        tokens = self._budget.tokens_experience
        with reference.offload.here():
            return score_all(self.model, samples, self._temperature, self.config, tokens, reference.full_kl)

    @with_weights_on_device
    def masked_kl(self, samples: Sequence[Sample], masked: Sequence[Sample]) -> Tensor:
        """Exact KL (B, T) of the current weights from themselves with masked images, of the same responses."""
        tokens = self._budget.tokens_experience
        return masked_kl_all(self.model, samples, masked, self._temperature, self.config, tokens)

    @with_weights_on_device
    def sum_pi_squared(self, samples: Sequence[Sample]) -> Tensor:
        """Σ_v π(v)² (B, T) of the current weights."""
        return sum_pi_squared_all(self.model, samples, self._temperature, self.config, self._budget.tokens_experience)

    @with_weights_on_device
    def update(
        self,
        samples: Sequence[Sample],
        make_loss: MakeLoss,
        step: int,
        mini_batch: int,
        progress: Progress | None = None,
        version: int | None = None,
    ) -> dict[str, float]:
        """Train on all samples: `ppo_epochs` passes of one optimizer step per `mini_batch` samples.

        With `version`, samples of other versions are left out where the sampler's log-probs are compared with ours.
        """
        difference = _Difference(version)

        def begin(mini: list[int], fresh: bool) -> MicroStep | None:
            loss_of = make_loss(mini, partial(self.log_probs, [samples[row] for row in mini]))
            if loss_of is None:
                return None

            def micro_step(micro: list[Sample], rows: list[int]) -> tuple[Tensor, dict[str, Tensor]]:
                scored = score(self.model, micro, self._temperature, self.config.share_prefix)
                # Before the first optimizer step the weights are those that sampled: what differs is numerics.
                if fresh and not self._updates.idle:
                    difference.add(micro, scored.log_probs_BT.detach())
                return loss_of(scored, rows)

            return micro_step

        return self._updates.run(samples, begin, step, mini_batch, progress) | difference.metrics(ranks_of(self.model))

    @with_weights_on_device
    def broken_weights(self) -> list[str]:
        """Names of parameters that are not finite."""
        return broken_weights(self.model)

    @with_weights_on_device
    def save(self, folder: Path, tokenizer: PreTrainedTokenizerBase, model_only: bool) -> None:
        """Write a Hugging Face folder, or one of PEFT's, and, unless `model_only`, the optimizer beside it."""
        if lora.has_adapters(self.model):
            where = folder / lora.FOLDER
            save_adapters(self.model, where)
        else:
            where = folder / "huggingface"
            save_weights(self.model, where)
        if ranks_of(self.model).is_first:
            tokenizer.save_pretrained(where)
        if not model_only:
            self._updates.save(folder)

    def load_optimizer(self, folder: Path) -> None:
        """Read back what `save` wrote; the weights are loaded with the model."""
        self._updates.load(folder)


class _Difference:
    """|log π_learner − log π_sampler| over the tokens that the model wrote."""

    def __init__(self, version: int | None) -> None:
        self._version = version
        self._gaps: list[Tensor] = []  # sum and maximum of each micro-batch, on its device
        self._tokens = 0

    def add(self, samples: Sequence[Sample], log_probs_BT: Tensor) -> None:
        counted = [[int(m and self._version in (None, v)) for m, v in zip(s.mask, s.versions)] for s in samples]
        both = torch.stack([pad([s.log_probs for s in samples]), pad(counted)])
        (flat,) = to_device(log_probs_BT.device, both.numpy().ravel())
        sampled, mask = flat.view(both.shape)
        gap = torch.where(mask.bool(), (log_probs_BT - sampled).abs(), 0.0)
        self._gaps += [gap.sum(), gap.max()]
        self._tokens += sum(map(sum, counted))

    def metrics(self, ranks: Ranks) -> dict[str, float]:
        gaps = read(self._gaps) if self._gaps else []
        found = ranks.collect({"sum": sum(gaps[::2]), "max": largest(gaps[1::2]), "tokens": self._tokens})
        tokens = sum(each["tokens"] for each in found)
        if not tokens:
            return {}
        return {
            "rollout/log_prob_diff_mean": sum(each["sum"] for each in found) / tokens,
            "rollout/log_prob_diff_max": largest([each["max"] for each in found]),
        }
