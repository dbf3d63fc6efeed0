"""whet sharpens language and vision-language models with reinforcement learning.

Jobs are functions: `train`, `sft`, `evaluate`, `generate`; `load` opens a run, `Session` is for a loop of your own, and
`advantage`, `policy_loss` and `logger` register what you add by name. Guides: docs/python.md and
docs/extending.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whet.algos import LossInputs, Signals, advantage, policy_loss
    from whet.api.evaluate import Evaluation, evaluate
    from whet.api.generate import generate
    from whet.api.run import Run, load
    from whet.api.session import Session
    from whet.api.supervised import sft
    from whet.api.table import Table
    from whet.api.train import train
    from whet.errors import UserError
    from whet.plots.picture import Plot
    from whet.tracking.logger import Logger, RunInfo, logger
    from whet.types import Sample

__all__ = [
    "Evaluation",
    "Logger",
    "LossInputs",
    "Plot",
    "Run",
    "RunInfo",
    "Sample",
    "Session",
    "Signals",
    "Table",
    "UserError",
    "__version__",
    "advantage",
    "evaluate",
    "generate",
    "load",
    "logger",
    "policy_loss",
    "sft",
    "train",
]
__version__ = "0.1.0"

# Imported when asked for: `import whet` alone must not wait for torch.
_MODULES = {
    "whet.algos": ("LossInputs", "Signals", "advantage", "policy_loss"),
    "whet.api.evaluate": ("Evaluation", "evaluate"),
    "whet.api.generate": ("generate",),
    "whet.plots.picture": ("Plot",),
    "whet.api.run": ("Run", "load"),
    "whet.api.session": ("Session",),
    "whet.api.supervised": ("sft",),
    "whet.api.table": ("Table",),
    "whet.api.train": ("train",),
    "whet.errors": ("UserError",),
    "whet.tracking.logger": ("Logger", "RunInfo", "logger"),
    "whet.types": ("Sample",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import the public name that is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'whet' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
