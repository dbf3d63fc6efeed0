"""Ways in which passes of a model may differ: rounded as a sampler's, with recorded routing, or with offload.

Whoever switches one on notes it here (`fp8.round_alike`, `routing.replay_routing`, `set_activation_offload`); passes
ask, and import none of them where nobody did.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from weakref import WeakKeyDictionary, WeakSet

from torch import nn

Mode = AbstractContextManager[object]
ROUNDING: WeakKeyDictionary[nn.Module, Mode] = WeakKeyDictionary()  # the mode that rounds a model's products
REPLAYING: WeakSet[nn.Module] = WeakSet()  # models whose passes replay the routing that their samples recorded

OFFLOADING: WeakKeyDictionary[nn.Module, Callable[[], Mode]] = WeakKeyDictionary()  # makes a context for saved tensors


def rounds_alike(model: nn.Module) -> bool:
    """Return True if the learner's passes of a model round."""
    return model in ROUNDING


def rounding_of(model: nn.Module) -> Mode:
    """Return the context of a learner's pass: one that rounds, or one that does nothing."""
    return ROUNDING.get(model) or nullcontext()


def recompute_contexts(model: nn.Module) -> tuple[Mode, Mode]:
    """Contexts of a checkpointed forward pass, which has its own, and of its repetition in the backward pass."""
    return nullcontext(), rounding_of(model)


def replays(model: nn.Module) -> bool:
    """Return True if passes of a model replay recorded routing: the policy, and no reference or teacher."""
    return model in REPLAYING


def offloading_of(model: nn.Module) -> Mode:
    """Return the context in which recomputed layers run: one that offloads their inputs, or one that does nothing."""
    return OFFLOADING.get(model, nullcontext)()
