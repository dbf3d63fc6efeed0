"""The objective of supervised fine-tuning: negative log-likelihood of the assistant's tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whet.algos.aggregate import Aggregator, count
from whet.config import Config
from whet.learn.packing import pad
from whet.learn.protocol import MiniBatchLoss, Objective
from whet.learn.scoring import Scored
from whet.types import Sample

NO_VERSION = -1  # no sampler wrote demonstrations: there are no log-probs to compare with


@dataclass(frozen=True)
class NegativeLogLikelihood(Objective[Scored]):
    """−log π(token) over the tokens under the mask of a batch, averaged as `worker.actor.loss_avg_mode` says.

    Counts are those of the whole batch: the loss does not depend on how it is cut into micro-batches, or on ranks.
    """

    masks: list[list[int]]
    mode: str
    horizon: int

    @classmethod
    def of(cls, samples: Sequence[Sample], config: Config) -> NegativeLogLikelihood:
        """Return the objective of one update on these samples."""
        return cls([s.mask for s in samples], config.worker.actor.loss_avg_mode, config.data.max_response_length)

    def begin(self, rows: list[int], current: Callable[[], Tensor]) -> LikelihoodLoss:
        """Return the loss of the mini-batch of these rows."""
        masks = [self.masks[row] for row in rows]
        return LikelihoodLoss(masks, Aggregator(self.mode, count(pad(masks), self.horizon)))


@dataclass(frozen=True)
class LikelihoodLoss(MiniBatchLoss[Scored]):
    """The negative log-likelihood of one mini-batch."""

    masks: list[list[int]]
    aggregate: Aggregator

    def loss(self, outputs: Scored, rows: list[int]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return loss and metrics of the micro-batch of these rows of the mini-batch."""
        mask_BT = pad([self.masks[i] for i in rows]).to(outputs.log_probs_BT.device)
        loss = self.aggregate(-outputs.log_probs_BT, mask_BT)
        metrics = {"loss": loss.detach(), "entropy": self.aggregate.token_mean(outputs.entropy_BT, mask_BT)}
        if self.aggregate.mode not in ("token", "token-mean"):
            metrics["token_loss"] = self.aggregate.token_mean(-outputs.log_probs_BT, mask_BT)
        return loss, metrics


def summed_loss(samples: Sequence[Sample], log_probs_BT: Tensor) -> tuple[float, int]:
    """Return Σ −log π over the tokens under the mask, and their number."""
    mask_BT = pad([sample.mask for sample in samples])
    chosen = torch.where(mask_BT.bool(), -log_probs_BT, 0.0)
    return float(chosen.double().sum()), int(mask_BT.sum())
