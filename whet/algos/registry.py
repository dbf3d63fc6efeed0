"""Algorithms by name.

An algorithm is a recipe of three things: the per-token signals it needs beforehand, an advantage, a policy loss. Each
advantage and loss is one function on (B, T) tensors in a file of its own; the decorators here give it its name.
"""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from whet.algos.aggregate import Aggregator
from whet.algos.guard import guarded_advantage, guarded_policy_loss, guarded_prepare
from whet.config.schema.actor import ActorConfig
from whet.config.schema.algorithm import AlgorithmConfig
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

SIGNALS = ("values", "sum_pi_squared", "baselines")  # what `needs` may name
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

_ADVANTAGES: dict[str, Advantage] = {}
_NEEDS: dict[str, tuple[str, ...]] = {}
_POLICY_LOSSES: dict[str, PolicyLoss] = {}
_PREPARATIONS: dict[str, Prepare] = {}
_Function = TypeVar("_Function", bound=Callable)


def advantage(*names: str, needs: Sequence[str] = ()) -> Callable[[_Function], _Function]:
    """Register an advantage estimator under one or more names.

    `needs` names the fields of `Signals` that must be computed for it: values, sum_pi_squared, baselines.
    """
    _check_names(names, "advantage")
    for need in needs:
        if need not in SIGNALS:
            raise UserError(f"needs={need!r}: an advantage may need {', '.join(SIGNALS)}")

    def keep(function: _Function) -> _Function:
        _register(_ADVANTAGES, names, function, "algorithm.adv_estimator", guarded_advantage)
        _NEEDS.update({name: tuple(needs) for name in names})
        return function

    return keep


def policy_loss(*names: str, prepare: Prepare | None = None) -> Callable[[_Function], _Function]:
    """Register a policy loss under one or more names.

    A loss whose tokens depend on each other across the mini-batch (the most covariant ones, say) chooses them in
    `prepare`, which sees the whole of it; choosing within a micro-batch would make the gradient depend on the cut.
    """
    _check_names(names, "policy_loss")

    def keep(function: _Function) -> _Function:
        _register(_POLICY_LOSSES, names, function, "worker.actor.loss_type", guarded_policy_loss)
        for name in names:
            _PREPARATIONS.pop(name, None)  # of a cell that was run before
        if prepare is not None:
            _register(_PREPARATIONS, names, prepare, "worker.actor.loss_type", guarded_prepare)
        return function

    return keep


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


def _check_names(names: tuple[object, ...], decorator: str) -> None:
    if not names or not all(isinstance(name, str) and name for name in names):
        raise UserError(f'a function is registered with its name in parentheses: @whet.{decorator}("mine")')


def _register(
    table: dict, names: tuple[str, ...], function: Callable, key: str, guard: Callable[[Callable, str], Callable]
) -> None:
    """Note a function under its names; those of others are not taken over, and those from outside are guarded."""
    file = _file_of(function)
    for name in names:
        if name in table and _file_of(table[name]) != file and not _is_cell(_file_of(table[name])):
            raise UserError(f"the name {name} is taken by {_file_of(table[name])}; choose another")
    for name in names:
        table[name] = function if file.startswith(_PACKAGE) else guard(function, f"{key}={name} ({file})")


def registered_outside(name: str) -> dict[str, Any]:
    """Describe what this process has registered under a name from outside the package, by kind of function."""
    found: dict[str, Any] = {}
    tables: dict[str, dict[str, Any]] = {
        "advantage": _ADVANTAGES, "policy_loss": _POLICY_LOSSES, "prepare": _PREPARATIONS
    }  # fmt: skip
    for kind, table in tables.items():
        if name in table and not _file_of(table[name]).startswith(_PACKAGE):
            found[kind] = table[name].__wrapped__  # without the guard
    return found | ({"needs": _NEEDS[name]} if "advantage" in found else {})


def _is_cell(file: str) -> bool:
    """True for code of a notebook cell or a prompt, which has a file name but no file: running it again replaces it."""
    return not file.startswith(_PACKAGE) and not os.path.exists(file)


def _file_of(function: Callable) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code.co_filename if code else type(function).__name__


def _find(table: dict, name: str, key: str) -> Callable:
    if name in table:
        return table[name]
    near = difflib.get_close_matches(name, table, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UserError(f"{key}={name}: there is no such function{hint} (there are: {', '.join(sorted(table))})")
