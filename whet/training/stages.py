"""Position of a run in `trainer.stages`, and the condition that ends a stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from whet.config import Config

if TYPE_CHECKING:
    from whet.config import Stage


class Stages:
    """The position in a run's stages; a run without any is one stage that ends with the run."""

    def __init__(self, config: Config, say: Callable[[str], None], warn: Callable[[str], None]) -> None:
        self.base = config
        self._stages: list[Stage] = []
        if config.trainer.stages:
            from whet.config import read_stages

            self._stages = read_stages(config)
        self._say, self._warn = say, warn
        self._index, self._steps, self._streak = 0, 0, 0
        self._why = ""  # the latest stage ended

    @property
    def config(self) -> Config:
        """The config of the current stage."""
        if not self._stages:
            return self.base
        return self._stages[min(self._index, len(self._stages) - 1)].config

    @property
    def configs(self) -> list[Config]:
        """Every config that the run will have."""
        return [stage.config for stage in self._stages] or [self.base]

    @property
    def is_over(self) -> bool:
        """True if the last stage has ended."""
        return bool(self._stages) and self._index >= len(self._stages)

    def total_steps(self) -> int | None:
        """The sum of the stages' steps, at most trainer.max_steps; None where a stage has no number of steps."""
        lengths = [stage.steps for stage in self._stages]
        if not lengths or None in lengths:
            return None
        total = sum(steps or 0 for steps in lengths)
        return min(total, self.base.trainer.max_steps or total)

    def metrics(self) -> dict[str, float]:
        """The current stage, counted from 1."""
        return {"train/stage": self._index + 1} if self._stages else {}

    def observe(self, metrics: Mapping[str, float]) -> bool:
        """Count a step with its metrics; whether another stage begins, or the last one has ended."""
        if not self._stages or self.is_over:
            return False
        stage = self._stages[self._index]
        self._steps += 1
        why = "after its last step" if self._steps == stage.steps else self._until(stage, metrics)
        if why is None:
            return False
        self._index, self._steps, self._streak, self._why = self._index + 1, 0, 0, why
        return True

    def announce_end(self) -> None:
        """Say which stage has ended, and why."""
        self._say(f"stage {self._index} of {len(self._stages)} ended {self._why}")

    def announce(self) -> None:
        """Say what the current stage changes."""
        if self._stages and not self.is_over:
            overrides = self.base.trainer.stages[self._index].get("overrides") or {}
            changes = ", ".join(f"{name}={value}" for name, value in _flat(overrides)) or "nothing changed"
            self._say(f"stage {self._index + 1} of {len(self._stages)} begins: {changes}")

    def state_dict(self) -> dict[str, Any]:
        """The position."""
        return {"index": self._index, "steps": self._steps, "streak": self._streak}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on at a saved position."""
        self._index, self._steps, self._streak = state["index"], state["steps"], state["streak"]

    def _until(self, stage: Stage, metrics: Mapping[str, float]) -> str | None:
        """Why the stage ends now, or None."""
        until = stage.until
        if until is None:
            return None
        if until.metric not in metrics:
            if self._steps == 1 and not until.metric.startswith("val/"):
                from whet.config import nearest

                near = nearest(until.metric, metrics)
                advice = f"; did you mean {near}?" if near else ""
                self._warn(f"trainer.stages[{self._index}]: this step has no metric {until.metric}{advice}")
            return None
        value = metrics[until.metric]
        self._streak = self._streak + 1 if until.is_met_by(value) else 0
        return f"with {until.metric}={value:.4g}" if self._streak >= until.patience else None


def _flat(overrides: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    flat: list[tuple[str, Any]] = []
    for name, value in overrides.items():
        flat += _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [(f"{prefix}{name}", value)]
    return flat
