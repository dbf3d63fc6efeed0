"""One normaliser for every loss.

A loss per token becomes a number by dividing by counts of the whole mini-batch, never of the micro-batch at hand. The
losses of the micro-batches then add up to the mini-batch's loss, so the gradient does not depend on how it was cut.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from whet.algos.quirks import NONE, Quirks
from whet.errors import UserError

_SHORT = {"token": "token-mean", "seq": "seq-mean-token-mean"}
MODES = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")


@dataclass(frozen=True, slots=True)
class Normaliser:
    """Counts over the global mini-batch."""

    tokens: int  # tokens under the mask
    sequences: int  # responses with at least one such token
    horizon: int  # the longest response allowed; divides in seq-mean-token-sum-norm (Dr. GRPO, 2025)


def count(mask_BT: Tensor, horizon: int) -> Normaliser:
    """The normaliser of a mini-batch with this mask."""
    lengths = mask_BT.sum(dim=1)
    return Normaliser(int(lengths.sum()), int((lengths > 0).sum()), horizon)


def aggregate(loss_BT: Tensor, mask_BT: Tensor, mode: str, whole: Normaliser) -> Tensor:
    """The share of the mini-batch's loss that these rows contribute."""
    mode = _SHORT.get(mode, mode)
    masked = torch.where(mask_BT.bool(), loss_BT, 0.0)  # not a product: what lies outside may be inf or nan
    if mode == "token-mean":
        return masked.sum() / max(whole.tokens, 1)
    if mode == "token-sum":
        return masked.sum()
    sequences = max(whole.sequences, 1)
    if mode == "seq-mean-token-sum":
        return masked.sum() / sequences
    if mode == "seq-mean-token-mean":
        lengths = mask_BT.sum(dim=1).clamp(min=1)
        return (masked.sum(dim=1) / lengths).sum() / sequences
    if mode == "seq-mean-token-sum-norm":
        return masked.sum() / sequences / whole.horizon
    raise UserError(f"worker.actor.loss_avg_mode={mode}: choose one of {', '.join((*_SHORT, *MODES))}")


@dataclass(frozen=True, slots=True)
class Aggregator:
    """`aggregate` with the configured mode and the mini-batch's counts filled in."""

    mode: str
    whole: Normaliser
    quirks: Quirks = NONE  # what the loss does as another package does it

    def __call__(self, loss_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """A loss, in the configured mode."""
        return aggregate(loss_BT, mask_BT, self.mode, self.whole)

    def token_mean(self, value_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """A metric: its mean over the mini-batch's tokens, whatever the loss's mode."""
        return aggregate(value_BT.detach().float(), mask_BT, "token-mean", self.whole)
