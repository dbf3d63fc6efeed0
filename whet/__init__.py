"""whet sharpens language and vision-language models with reinforcement learning.

`whet.advantage` and `whet.policy_loss` register functions of your own by name; see examples/extending.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whet.algos import LossInputs, Signals, advantage, policy_loss

__all__ = ["LossInputs", "Signals", "__version__", "advantage", "policy_loss"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """What extensions need, imported when it is asked for: `import whet` alone must not wait for torch."""
    if name not in __all__:
        raise AttributeError(f"module 'whet' has no attribute {name!r}")
    from whet import algos

    return getattr(algos, name)
