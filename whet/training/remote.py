"""Learner, critic and reference of a run on several devices, as the loop sees them: calls to a group of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from whet.distributed import Group
from whet.learn.critic import MakeValueLoss
from whet.learn.learner import MakeLoss
from whet.learn.offload import Offload
from whet.learn.updates import Progress
from whet.training.objective import Objective
from whet.training.values import ValueObjective
from whet.types import Sample


class RemoteLearner:
    """The policy's learner on all ranks of a group."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self.offload = Offload(tuple, wait=False)  # every rank sees to its own

    def log_probs(self, samples: Sequence[Sample]) -> Tensor:
        """Log-probs (B, T) of the current weights."""
        return cast(Tensor, self._group.call("log_probs", list(samples))[0])

    def full_kl(self, samples: Sequence[Sample], reference: object) -> Tensor:
        """Exact KL (B, T) from the reference that every rank has."""
        return cast(Tensor, self._group.call("full_kl", list(samples))[0])

    def masked_kl(self, samples: Sequence[Sample], masked: Sequence[Sample]) -> Tensor:
        """Exact KL (B, T) of the current weights from themselves with masked images."""
        return cast(Tensor, self._group.call("masked_kl", list(samples), list(masked))[0])

    def sum_pi_squared(self, samples: Sequence[Sample]) -> Tensor:
        """Σ_v π(v)² (B, T) of the current weights."""
        return cast(Tensor, self._group.call("sum_pi_squared", list(samples))[0])

    def update(
        self,
        samples: Sequence[Sample],
        make_loss: MakeLoss,
        step: int,
        mini_batch: int,
        progress: Progress | None = None,
        version: int | None = None,
    ) -> dict[str, float]:
        """Train on all samples; each rank computes its share of them."""
        objective = replace(cast(Objective, make_loss), reference=None)
        metrics, found = self._group.call("update", objective, step, mini_batch, version)[0]
        objective.experience.correction_metrics[:] = found
        if progress is not None:
            progress(len(samples) * objective.config.worker.actor.ppo_epochs)
        return cast(dict[str, float], metrics)

    def save(self, folder: Path, tokenizer: PreTrainedTokenizerBase, model_only: bool) -> None:
        """Write the policy and its optimizer."""
        self._group.call("save", "actor", folder, model_only)

    def load_optimizer(self, folder: Path) -> None:
        """Read back what `save` wrote."""
        self._group.call("load_optimizer", "actor", folder)

    def broken_weights(self) -> list[str]:
        """Names of parameters that are not finite on any rank."""
        return cast(list[str], self._group.call("broken_weights", "actor")[0])


class RemoteCritic:
    """The value model on all ranks of a group."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def values(self, samples: Sequence[Sample]) -> Tensor:
        """Values (B, T) of the current weights."""
        return cast(Tensor, self._group.call("values", list(samples))[0])

    def update(
        self,
        samples: Sequence[Sample],
        make_loss: MakeValueLoss,
        step: int,
        mini_batch: int,
        progress: Progress | None = None,
    ) -> dict[str, float]:
        """Train on all samples; each rank computes its share of them."""
        objective = cast(ValueObjective, make_loss)
        metrics = self._group.call("update_critic", objective, step, mini_batch)[0]
        if progress is not None:
            progress(len(samples) * objective.config.worker.critic.ppo_epochs)
        return cast(dict[str, float], metrics)

    def save(self, folder: Path, tokenizer: PreTrainedTokenizerBase, model_only: bool) -> None:
        """Write the value model and its optimizer."""
        self._group.call("save", "critic", folder, model_only)

    def load_optimizer(self, folder: Path) -> None:
        """Read back what `save` wrote."""
        self._group.call("load_optimizer", "critic", folder)

    def broken_weights(self) -> list[str]:
        """Names of parameters that are not finite on any rank."""
        return cast(list[str], self._group.call("broken_weights", "critic")[0])


class RemoteReference:
    """The frozen reference on all ranks of a group."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def log_probs(self, samples: Sequence[Sample]) -> Tensor:
        """Log-probs (B, T), 0 past the end of a response."""
        return cast(Tensor, self._group.call("reference_log_probs", list(samples))[0])
