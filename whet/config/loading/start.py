"""Where a config starts from: a file, the built-in quickstart, or the defaults.

The built-in quickstart is meant only by a command that says nothing of a task of its own. As soon as data, a model or a
reward is named, a run without `config=` starts from the defaults, so that nothing of the quickstart (its learning rate,
template, number of steps) is inherited unseen.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from whet.config.loading.layer import Layer

TASK_KEYS = (
    "data.train_files",
    "data.val_files",
    "worker.actor.model.model_path",
    "worker.reward.reward_function",
    "worker.reward.combine",
    "worker.reward.url",
)
DEFAULTS = "defaults"


@dataclass(frozen=True)
class Start:
    """What a config starts from where no file is named."""

    built_in: bool = False
    named: tuple[str, ...] = ()  # keys of a task of the user's own, which keep the quickstart out

    def label(self, source: Path | None) -> str:
        """Return what to call the start in messages."""
        if source is None:
            return DEFAULTS
        return f"built-in quickstart ({source})" if self.built_in else str(source)


def own_task(given: Layer) -> tuple[str, ...]:
    """Return the keys that name data, a model or a reward, misspelt ones included; one set to nothing names none."""
    named = {key for key, value in given.items() if value.value not in (None, "")}
    meant = {key for problem in given.problems for key in problem.keys}
    return tuple(key for key in TASK_KEYS if key in named | meant)
