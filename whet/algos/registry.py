"""Algorithms by name.

An algorithm is a recipe of three things: the per-token signals it needs beforehand, an advantage, a policy loss. Each
advantage and loss is one function on (B, T) tensors in a file of its own; the decorators here give it its name. That is
the only place where the name is written: the choices of the config are read from there.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from whet.algos.aggregate import Aggregator
from whet.config.function_registry import FunctionRegistry
from whet.config.schema.actor import LOSSES, ActorConfig
from whet.config.schema.algorithm import ADVANTAGES, AlgorithmConfig
from whet.errors import UserError


@dataclass(slots=True)
class Signals:
    """Signals of a batch of B responses before the update; T is the longest response.

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
    process_rewards_BT: Tensor | None = None  # of an implicit reward model (PRIME)
    states_BT: Tensor | None = None  # the state that each turn was taken in: equal numbers, equal states; -1 between


@dataclass(slots=True)
class LossInputs:
    """One micro-batch as a policy loss sees it, 0 outside the mask; only `log_probs_BT` carries a gradient."""

    log_probs_BT: Tensor
    old_log_probs_BT: Tensor
    advantages_BT: Tensor
    mask_BT: Tensor
    weights_BT: Tensor | None = None  # importance weights of the rollout correction, 1 where there are none
    prepared: dict[str, Tensor] = field(default_factory=dict)  # these rows of what the loss's `prepare` returned
    groups_B: Tensor | None = None  # rows with the same number answer the same prompt

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

SIGNALS = ("values", "sum_pi_squared", "baselines", "reference", "states", "process_rewards")  # what `needs` may name
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_Function = TypeVar("_Function", bound=Callable)


@dataclass(frozen=True, slots=True)
class _AdvantageEntry:
    """A registered advantage estimator; `function` is guarded if it is from outside the package."""

    function: Advantage
    needs: tuple[str, ...]
    group: bool


@dataclass(frozen=True, slots=True)
class _LossEntry:
    """A registered policy loss; its functions are guarded if they are from outside the package."""

    function: PolicyLoss
    prepare: Prepare | None


def advantage(*names: str, needs: Sequence[str] = (), group: bool = False) -> Callable[[_Function], _Function]:
    """Register an advantage estimator under one or more names.

    `needs` names what must be computed for it: values, sum_pi_squared, baselines, states, process_rewards (fields of
    `Signals`), or reference, which has the reference model loaded for `ref_log_probs_BT`. `group` says
    that it compares the responses of a prompt with each other: a config with one response per prompt is refused.
    """
    _check_names(names, "advantage")
    for need in needs:
        if need not in SIGNALS:
            raise UserError(f"needs={need!r}: an advantage may need {', '.join(SIGNALS)}")

    def keep(function: _Function) -> _Function:
        _check_free(ADVANTAGES, names, function)
        for name in names:
            guarded = _guarded(function, f"{ADVANTAGES.key}={name}", "advantage")
            ADVANTAGES.keep(name, _AdvantageEntry(guarded, tuple(needs), group))
        return function

    return keep


def policy_loss(*names: str, prepare: Prepare | None = None) -> Callable[[_Function], _Function]:
    """Register a policy loss under one or more names.

    A loss whose tokens depend on each other across the mini-batch (the most covariant ones, say) chooses them in
    `prepare`, which sees the whole of it; choosing within a micro-batch would make the gradient depend on the cut.
    """
    _check_names(names, "policy_loss")

    def keep(function: _Function) -> _Function:
        _check_free(LOSSES, names, function)
        for name in names:
            label = f"{LOSSES.key}={name}"
            prepared = None if prepare is None else _guarded(prepare, label, "prepare")
            LOSSES.keep(name, _LossEntry(_guarded(function, label, "policy_loss"), prepared))
        return function

    return keep


def needs_of(name: str) -> tuple[str, ...]:
    """Return the signals that the estimator of this name wants computed."""
    return ADVANTAGES.find(name).needs


def preparation_of(name: str) -> Prepare | None:
    """Return the function that the loss of this name calls once for each mini-batch, if any."""
    return LOSSES.find(name).prepare


def find_advantage(name: str) -> Advantage:
    """Return the estimator that `algorithm.adv_estimator` names."""
    return ADVANTAGES.find(name).function


def find_policy_loss(name: str) -> PolicyLoss:
    """Return the loss that `worker.actor.loss_type` names."""
    return LOSSES.find(name).function


def registered_outside(name: str) -> dict[str, Any]:
    """Describe what this process has registered under a name from outside the package, by kind of function."""
    found: dict[str, Any] = {}
    if (estimator := ADVANTAGES.kept(name)) is not None:
        found |= {"advantage": _unguarded(estimator.function), "needs": estimator.needs, "group": estimator.group}
    if (loss := LOSSES.kept(name)) is not None:
        found["policy_loss"] = _unguarded(loss.function)
        if loss.prepare is not None:
            found["prepare"] = _unguarded(loss.prepare)
    return found


def _check_names(names: tuple[object, ...], decorator: str) -> None:
    if not names or not all(isinstance(name, str) and name for name in names):
        raise UserError(f'a function is registered with its name in parentheses: @whet.{decorator}("mine")')


def _check_free(table: FunctionRegistry, names: tuple[str, ...], function: Callable) -> None:
    """Raise a `UserError` for a name of another file; running a notebook cell again replaces its functions."""
    file = _file_of(function)
    for name in names:
        owner = _file_of(found.function) if (found := table.kept(name)) is not None else None
        if name in table.built_in and not file.startswith(_PACKAGE):
            owner = os.path.join(os.path.dirname(_PACKAGE[:-1]), *table.built_in[name].split(".")) + ".py"
        if owner is not None and owner != file and not _is_cell(owner):
            raise UserError(f"the name {name} is taken by {owner}; choose another")


def _guarded(function: Callable, label: str, kind: str) -> Callable:
    """Check what a function from outside the package returns; one of the package is left as it is."""
    file = _file_of(function)
    if file.startswith(_PACKAGE):
        return function
    from whet.algos.guard import GUARDS

    return GUARDS[kind](function, f"{label} ({file})")


def _unguarded(function: Callable) -> Any:
    """Return the function under a guard, with whatever decorators of the user's it has."""
    return getattr(function, "__wrapped__")  # noqa: B009, as mypy knows no attributes of callables


def _is_cell(file: str) -> bool:
    """True for code of a notebook cell or a prompt, which has a file name but no file: running it again replaces it."""
    return not file.startswith(_PACKAGE) and not os.path.exists(file)


def _file_of(function: Callable) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code.co_filename if code else type(function).__name__
