"""Algorithms by name.

An algorithm is a recipe of three things: the per-token signals it needs beforehand, an advantage, a policy loss. Each
advantage and loss is one function on (B, T) tensors in a file of its own; the decorators here give it its name.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
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
    ref_log_probs_BT: Tensor | None = None  # the frozen reference


@dataclass(slots=True)
class LossInputs:
    """One micro-batch as a policy loss sees it, 0 outside the mask; only `log_probs_BT` carries a gradient."""

    log_probs_BT: Tensor
    old_log_probs_BT: Tensor
    advantages_BT: Tensor
    mask_BT: Tensor

    def __post_init__(self) -> None:
        # An inf outside the mask would pass the aggregator's forward pass and still make a nan of the gradient.
        inside = self.mask_BT.bool()
        for name in ("log_probs_BT", "old_log_probs_BT", "advantages_BT"):
            setattr(self, name, torch.where(inside, getattr(self, name), 0.0))


# advantages and returns, both (B, T) and exactly 0 outside the mask
Advantage = Callable[[Signals, AlgorithmConfig], tuple[Tensor, Tensor]]
# a scalar loss and metrics; each metric is this micro-batch's share of the mini-batch's mean, so shares add up
PolicyLoss = Callable[[LossInputs, ActorConfig, Aggregator], tuple[Tensor, dict[str, Tensor]]]

_ADVANTAGES: dict[str, Advantage] = {}
_POLICY_LOSSES: dict[str, PolicyLoss] = {}
_Function = TypeVar("_Function", bound=Callable)


def advantage(*names: str) -> Callable[[_Function], _Function]:
    """Register an advantage estimator under one or more names."""
    return _register(_ADVANTAGES, names)


def policy_loss(*names: str) -> Callable[[_Function], _Function]:
    """Register a policy loss under one or more names."""
    return _register(_POLICY_LOSSES, names)


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
