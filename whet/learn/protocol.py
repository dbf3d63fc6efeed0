"""Interfaces of what holds weights: the policy's learner, the critic, the reference, and the objectives they train on.

Learner, critic and reference each have an implementation in this process (`LocalLearner`, `LocalCritic`,
`LocalReference`) and one that calls the ranks of a group, which `training/remote.py` generates from the protocol. A
method that is declared here with `@on_ranks` and defined in the local class needs no further code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from whet.learn.scoring import Scored
from whet.types import Sample

Progress = Callable[[int], None]  # called with the number of samples that were trained on
Weights = Callable[[], Iterator[tuple[str, Tensor]]]  # parameters by their names in a Hugging Face folder

Outputs = TypeVar("Outputs", contravariant=True)
F = TypeVar("F", bound=Callable[..., object])


class MiniBatchLoss(Protocol[Outputs]):
    """The loss of one mini-batch, computed one micro-batch at a time."""

    def loss(self, outputs: Outputs, rows: list[int]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return what a micro-batch adds to the mini-batch's loss and metrics.

        `outputs` are those of the forward pass, `rows` the samples' places in the mini-batch. Losses and metrics of the
        micro-batches add up to the mini-batch's: divide by counts of the whole mini-batch, never of the micro-batch.
        """


class Objective(Protocol[Outputs]):
    """The loss that one update minimises, from the forward outputs of a model: `Scored`, or values (B, T).

    Ranks are sent a pickled copy, so it holds no model.
    """

    def begin(self, rows: list[int], current: Callable[[], Tensor]) -> MiniBatchLoss[Outputs] | None:
        """Return the loss of the mini-batch of these rows of the batch, or None if nothing is left to train on.

        `current` computes log-probs (B, T), or a critic's values, of the mini-batch under the current weights. It is an
        additional forward pass without gradient: call it only if the loss needs numbers of the whole mini-batch.
        """

    def metrics(self) -> dict[str, float]:
        """Return metrics of the whole update that `begin` found, under their full names."""
        return {}


@dataclass(frozen=True, slots=True)
class RankCall:
    """Declares how a method is called on ranks."""

    answer: Literal["first", "same"]  # the first rank's answer, or one that every rank must give alike
    own: tuple[str, ...] = ()  # parameters for which every rank has an object of its own
    local: tuple[str, ...] = ()  # parameters that cannot be sent; ranks use their defaults


_RANK_CALLS: dict[object, RankCall] = {}


def on_ranks(
    answer: Literal["first", "same"] = "first", own: tuple[str, ...] = (), local: tuple[str, ...] = ()
) -> Callable[[F], F]:
    """Declare a method of a protocol that is called on every rank of a group; see `RankCall`."""

    def declare(method: F) -> F:
        _RANK_CALLS[method] = RankCall(answer, own, local)
        return method

    return declare


def rank_calls(protocol: type) -> dict[str, RankCall]:
    """Return the methods of a protocol that are declared with `on_ranks`, by name."""
    methods = {name: getattr(protocol, name) for name in dir(protocol) if not name.startswith("_")}
    return {name: _RANK_CALLS[method] for name, method in methods.items() if method in _RANK_CALLS}


class Trained(Protocol):
    """A model that is trained and saved: the policy or the critic."""

    @on_ranks("same")
    def broken_weights(self) -> list[str]:
        """Return the names of parameters that hold NaN or infinite values."""

    @on_ranks(own=("tokenizer",))
    def save(self, folder: Path, tokenizer: PreTrainedTokenizerBase, model_only: bool) -> None:
        """Write the weights as a Hugging Face or PEFT folder and, unless `model_only`, the optimizer beside it."""

    @on_ranks()
    def load_optimizer(self, folder: Path) -> None:
        """Read the optimizer's state that `save` wrote; weights are loaded with the model."""


class Learner(Trained, Protocol):
    """The policy and its optimizer. Tensors are (B, T) on the host, 0 past the end of a response."""

    @on_ranks()
    def log_probs(self, samples: Sequence[Sample]) -> Tensor:
        """Return log-probs of the response tokens under the current weights."""

    @on_ranks()
    def full_kl(self, samples: Sequence[Sample]) -> Tensor:
        """Return the exact KL divergence from the reference at every response token."""

    @on_ranks()
    def masked_kl(self, samples: Sequence[Sample], masked: Sequence[Sample]) -> Tensor:
        """Return the exact KL divergence from the same weights given `masked`: the same responses, masked images."""

    @on_ranks()
    def sum_pi_squared(self, samples: Sequence[Sample]) -> Tensor:
        """Return Σ_v π(v)² at every response token."""

    @on_ranks(local=("progress",))
    def update(
        self,
        samples: Sequence[Sample],
        objective: Objective[Scored],
        step: int,
        mini_batch: int,
        progress: Progress | None = None,
        version: int | None = None,
        recorded: Sequence[int] = (),
    ) -> dict[str, float]:
        """Train on all samples: `ppo_epochs` passes, one optimizer step per `mini_batch` samples; return metrics.

        Log-probs of sampler and learner are compared for samples of this `version`, or for all without one. What is
        computed of the rows `recorded` is kept for the method of that name.
        """

    @on_ranks()
    def recorded(self) -> Tensor:
        """Return (3, R, T) of the R rows that the latest update was told to record, in their order.

        Planes are log-probs and entropies, from the forward pass of the row's first mini-batch, and 1 for rows of which
        one was made.
        """

    def engine_weights(self) -> AbstractContextManager[Weights]:
        """Return the weights for an engine to load, on their device inside the block.

        On ranks engines read the weights of their own rank, and this process has none.
        """
        return nullcontext(_no_weights)


class Critic(Trained, Protocol):
    """The value model and its optimizer."""

    @on_ranks()
    def values(self, samples: Sequence[Sample]) -> Tensor:
        """Return the values (B, T) before each response token, 0 past the end of a response."""

    @on_ranks(local=("progress",))
    def update(
        self,
        samples: Sequence[Sample],
        objective: Objective[Tensor],
        step: int,
        mini_batch: int,
        progress: Progress | None = None,
    ) -> dict[str, float]:
        """Train on all samples: `ppo_epochs` passes, one optimizer step per `mini_batch` samples; return metrics."""


class Reference(Protocol):
    """The frozen model that KL divergence is measured from."""

    @on_ranks()
    def log_probs(self, samples: Sequence[Sample]) -> Tensor:
        """Return log-probs (B, T) of the response tokens, 0 past the end of a response."""


def _no_weights() -> Iterator[tuple[str, Tensor]]:
    raise RuntimeError("the weights of a run on several devices are on its ranks")
