"""Functions from outside the package: what they take and return is checked, so that a slip is named and not trained on.

A guarded function behaves as the one inside it; a wrong signature is refused when it is registered, anything else when
it is called. Errors name the config key that chose the function, and its file.
"""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from whet.errors import UserError


def guarded_advantage(function: Callable, label: str) -> Callable:
    """An advantage estimator whose results are (B, T), finite under the mask, and 0 outside."""
    _must_take(function, label, "signals, config")

    @functools.wraps(function)
    def checked(signals: Any, config: Any) -> tuple[Tensor, Tensor]:
        result = _call(function, label, signals, config)
        if not isinstance(result, tuple) or len(result) != 2:
            raise UserError(f"{label}: must return two tensors, (advantages, returns), not {_kind(result)}")
        advantages, returns = (
            _per_token(values, signals.mask_BT, f"{label}: its {what}")
            for values, what in zip(result, ("advantages", "returns"))
        )
        return advantages, returns

    return checked


def guarded_policy_loss(function: Callable, label: str) -> Callable:
    """A policy loss whose results are a finite number with a gradient, and numbers as metrics."""
    _must_take(function, label, "inputs, config, aggregate")

    @functools.wraps(function)
    def checked(inputs: Any, config: Any, aggregate: Any) -> tuple[Tensor, dict[str, Any]]:
        result = _call(function, label, inputs, config, aggregate)
        if not isinstance(result, tuple) or len(result) != 2:
            raise UserError(f"{label}: must return (loss, metrics), not {_kind(result)}")
        loss, metrics = result
        if not isinstance(loss, Tensor) or loss.ndim != 0:
            raise UserError(f"{label}: its loss must be one number, as aggregate(loss, mask) gives, not {_kind(loss)}")
        if not torch.isfinite(loss):
            raise UserError(f"{label}: its loss is {loss.item()}")
        if inputs.log_probs_BT.requires_grad and not loss.requires_grad:
            raise UserError(f"{label}: its loss has no gradient; compute it from inputs.log_probs_BT")
        if not isinstance(metrics, dict):
            raise UserError(f"{label}: its metrics must be a dict of numbers, not {_kind(metrics)}")
        for name, value in metrics.items():
            if not isinstance(name, str) or not _is_number(value):
                raise UserError(f"{label}: its metric {name!r} must be a number, not {_kind(value)}")
        return loss, metrics

    return checked


def guarded_prepare(function: Callable, label: str) -> Callable:
    """A preparation whose results are (B, T) tensors by name."""
    _must_take(function, label, "inputs, config")

    @functools.wraps(function)
    def checked(inputs: Any, config: Any) -> dict[str, Tensor]:
        result = _call(function, label, inputs, config)
        if not isinstance(result, dict):
            raise UserError(f"{label}: prepare must return a dict of tensors, not {_kind(result)}")
        return {name: _per_token(values, inputs.mask_BT, f"{label}: {name!r}") for name, values in result.items()}

    return checked


def _must_take(function: Callable, label: str, parameters: str) -> None:
    if not callable(function):
        raise UserError(f"{label}: expected a function, not {_kind(function)}")
    try:
        inspect.signature(function).bind(*parameters.split(", "))
    except TypeError as error:
        raise UserError(f"{label}: must be a function of ({parameters}): {error}") from None


def _call(function: Callable, label: str, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except UserError:
        raise
    except Exception as error:  # whatever the user's lines do wrong, the message names the line
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise UserError(f"{label}: {type(error).__name__}: {error} ({last.filename}:{last.lineno})") from error


def _per_token(values: Any, mask_BT: Tensor, label: str) -> Tensor:
    if not isinstance(values, Tensor) or values.shape != mask_BT.shape:
        raise UserError(f"{label} must be a tensor of shape {tuple(mask_BT.shape)} (B, T), not {_kind(values)}")
    inside = torch.where(mask_BT.bool(), values.detach().float(), 0.0)
    if not torch.isfinite(inside).all():
        row, column = (~torch.isfinite(inside)).nonzero()[0].tolist()
        raise UserError(f"{label} must be finite: {inside[row, column].item()} in row {row}, token {column}")
    return inside


def _is_number(value: Any) -> bool:
    return value.numel() == 1 if isinstance(value, Tensor) else isinstance(value, int | float)


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else type(value).__name__


GUARDS = {"advantage": guarded_advantage, "policy_loss": guarded_policy_loss, "prepare": guarded_prepare}
