"""Algorithms by name.

An algorithm is a recipe of three things: the per-token signals it needs beforehand, an advantage, a policy loss. Each
advantage and loss is one function on (B, T) tensors in a file of its own; the decorators here give it its name.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from whet.algos.aggregate import Aggregator
from whet.config.actor import ActorConfig
from whet.config.algorithm import AlgorithmConfig
from whet.errors import UserError


@dataclass(slots=True)
class Signals:
    """What is known of a batch of B responses before the update; T is the longest response.

    `mask_BT` is 1 where the model wrote the token. Everything else means something only under the mask.
    """

    mask_BT: Tensor
    rewards_BT: Tensor  # the score sits on the last token of the response; KL penalties are already taken off
    groups_B: Tensor  # rows with the same number answer the same prompt
    old_log_probs_BT: Tensor  # the policy that wrote the tokens
    scores: dict[str, Tensor] = field(default_factory=dict)  # (B,) for each key that the reward function gave
    ref_log_probs_BT: Tensor | None = None  # the frozen reference
    weights_BT: Tensor | None = None  # importance weights of the rollout correction
    # Signals that are computed only for estimators that name them in `needs`:
    values_BT: Tensor | None = None  # the critic's values
    sum_pi_squared_BT: Tensor | None = None  # Σ_v π(v)², how peaked the policy was at each token
    baselines_B: Tensor | None = None  # the score of one greedy response to the same prompt


@dataclass(slots=True)
class LossInputs:
    """One micro-batch as a policy loss sees it, 0 outside the mask; only `log_probs_BT` carries a gradient."""

    log_probs_BT: Tensor
    old_log_probs_BT: Tensor
    advantages_BT: Tensor
    mask_BT: Tensor
    weights_BT: Tensor | None = None  # importance weights of the rollout correction, 1 where there are none
    prepared: dict[str, Tensor] = field(default_factory=dict)  # these rows of what the loss's `prepare` returned

    def __post_init__(self) -> None:
        # An inf outside the mask would pass the aggregator's forward pass and still make a nan of the gradient.
        inside = self.mask_BT.bool()
        for name in ("log_probs_BT", "old_log_probs_BT", "advantages_BT"):
            setattr(self, name, torch.where(inside, getattr(self, name), 0.0))

    @property
    def log_ratio(self) -> Tensor:
        """log π/π_old of each token."""
        return self.log_probs_BT - self.old_log_probs_BT

    def weighted(self, loss_BT: Tensor) -> Tensor:
        """A loss per token times its importance weight, if there are any; the last thing before aggregation."""
        if self.weights_BT is None:
            return loss_BT
        return loss_BT * torch.where(self.mask_BT.bool(), self.weights_BT, 0.0)


# advantages and returns, both (B, T) and exactly 0 outside the mask
Advantage = Callable[[Signals, AlgorithmConfig], tuple[Tensor, Tensor]]
# a scalar loss and metrics; each metric is this micro-batch's share of the mini-batch's mean, so shares add up
PolicyLoss = Callable[[LossInputs, ActorConfig, Aggregator], tuple[Tensor, dict[str, Tensor]]]

# the whole mini-batch, its current log-probs without gradient -> (B, T) tensors that the loss finds in `prepared`
Prepare = Callable[[LossInputs, ActorConfig], dict[str, Tensor]]

_ADVANTAGES: dict[str, Advantage] = {}
_NEEDS: dict[str, tuple[str, ...]] = {}
_POLICY_LOSSES: dict[str, PolicyLoss] = {}
_PREPARATIONS: dict[str, Prepare] = {}
_Function = TypeVar("_Function", bound=Callable)


def advantage(*names: str, needs: Sequence[str] = ()) -> Callable[[_Function], _Function]:
    """Register an advantage estimator under one or more names.

    `needs` names the fields of `Signals` that must be computed for it: values, sum_pi_squared, baselines.
    """
    _NEEDS.update({name: tuple(needs) for name in names})
    return _register(_ADVANTAGES, names)


def policy_loss(*names: str, prepare: Prepare | None = None) -> Callable[[_Function], _Function]:
    """Register a policy loss under one or more names.

    A loss whose tokens depend on each other across the mini-batch (the most covariant ones, say) chooses them in
    `prepare`, which sees the whole of it; choosing within a micro-batch would make the gradient depend on the cut.
    """
    if prepare is not None:
        _PREPARATIONS.update(dict.fromkeys(names, prepare))
    return _register(_POLICY_LOSSES, names)


def needs_of(name: str) -> tuple[str, ...]:
    """The signals that the estimator of this name wants computed."""
    find_advantage(name)
    return _NEEDS[name]


def preparation_of(name: str) -> Prepare | None:
    """What the loss of this name does once for each mini-batch, if anything."""
    find_policy_loss(name)
    return _PREPARATIONS.get(name)


def find_advantage(name: str) -> Advantage:
    """The estimator that `algorithm.adv_estimator` names."""
    return _find(_ADVANTAGES, name, "algorithm.adv_estimator")


def find_policy_loss(name: str) -> PolicyLoss:
    """The loss that `worker.actor.loss_type` names."""
    return _find(_POLICY_LOSSES, name, "worker.actor.loss_type")


def _register(table: dict, names: tuple[str, ...]) -> Callable[[_Function], _Function]:
    def keep(function: _Function) -> _Function:
        for name in names:
            table[name] = function
        return function

    return keep


def _find(table: dict, name: str, key: str) -> Callable:
    if name in table:
        return table[name]
    near = difflib.get_close_matches(name, table, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UserError(f"{key}={name}: there is no such function{hint} (there are: {', '.join(sorted(table))})")
