"""The loss of demonstrations: how unlikely the model finds what the assistant wrote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whet.algos.aggregate import Aggregator, count
from whet.config import Config
from whet.learn.learner import MicroLoss
from whet.learn.packing import pad
from whet.learn.scoring import Scored
from whet.types import Sample


@dataclass(frozen=True)
class NegativeLogLikelihood:
    """−log π(token) over the tokens under the mask of a batch, averaged as `worker.actor.loss_avg_mode` says.

    Counts are those of the whole batch: the loss does not depend on how it is cut into micro-batches, or on ranks.
    """

    masks: list[list[int]]
    mode: str
    horizon: int

    @classmethod
    def of(cls, samples: Sequence[Sample], config: Config) -> NegativeLogLikelihood:
        """The loss of one update."""
        return cls([s.mask for s in samples], config.worker.actor.loss_avg_mode, config.data.max_response_length)

    def __call__(self, mini: list[int], current_log_probs: Callable[[], Tensor]) -> MicroLoss:
        """The loss of these rows, a micro-batch at a time."""
        whole = count(pad([self.masks[row] for row in mini]), self.horizon)
        aggregate = Aggregator(self.mode, whole)

        def loss_of(scored: Scored, rows: list[int]) -> tuple[Tensor, dict[str, Tensor]]:
            mask_BT = pad([self.masks[mini[i]] for i in rows]).to(scored.log_probs_BT.device)
            loss = aggregate(-scored.log_probs_BT, mask_BT)
            metrics = {"loss": loss.detach(), "entropy": aggregate.token_mean(scored.entropy_BT, mask_BT)}
            if self.mode not in ("token", "token-mean"):
                metrics["token_loss"] = aggregate.token_mean(-scored.log_probs_BT, mask_BT)
            return loss, metrics

        return loss_of


def summed_loss(samples: Sequence[Sample], log_probs_BT: Tensor) -> tuple[float, int]:
    """Σ −log π over the tokens under the mask, and how many they are."""
    mask_BT = pad([sample.mask for sample in samples])
    chosen = torch.where(mask_BT.bool(), -log_probs_BT, 0.0)
    return float(chosen.double().sum()), int(mask_BT.sum())
