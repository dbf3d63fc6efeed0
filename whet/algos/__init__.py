"""Pure functions of tensors, found by name: advantages, policy losses, KL, aggregation."""

from whet.algos.aggregate import Normaliser, aggregate
from whet.algos.registry import (
    LossInputs,
    Signals,
    advantage,
    find_advantage,
    find_policy_loss,
    needs_of,
    policy_loss,
    preparation_of,
    registered_outside,
)

__all__ = [
    "LossInputs",
    "Normaliser",
    "Signals",
    "advantage",
    "aggregate",
    "find_advantage",
    "find_policy_loss",
    "needs_of",
    "policy_loss",
    "preparation_of",
    "registered_outside",
]
