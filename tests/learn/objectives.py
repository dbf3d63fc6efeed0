"""Objectives for tests, each made of one function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from whet.learn.protocol import MiniBatchLoss, Objective

# outputs of a micro-batch, its rows of the mini-batch, the mini-batch's rows of the batch -> loss and metrics
LossFunction = Callable[[Any, list[int], list[int]], tuple[Tensor, dict[str, Tensor]]]


@dataclass(frozen=True)
class FunctionLoss(MiniBatchLoss[Any]):
    """The loss of one mini-batch."""

    function: LossFunction
    mini: list[int]

    def loss(self, outputs: Any, rows: list[int]) -> tuple[Tensor, dict[str, Tensor]]:
        """Call the function."""
        return self.function(outputs, rows, self.mini)


@dataclass(frozen=True)
class FunctionObjective(Objective[Any]):
    """The same function for every mini-batch."""

    function: LossFunction

    def begin(self, rows: list[int], current: Callable[[], Tensor]) -> FunctionLoss:
        """Return the loss of these rows."""
        return FunctionLoss(self.function, rows)
