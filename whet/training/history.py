"""What a run remembers of earlier steps beyond weights: pass rates of prompts, baselines of roles, groups to replay.

`BatchMaker` has one where the config asks for any of it. All of it is part of the checkpoint.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from whet.config import Config
from whet.data.loader import PromptLoader
from whet.errors import UserError
from whet.training.groups import load_groups, save_groups
from whet.training.pass_rates import PassRates
from whet.training.replay_buffer import ReplayBuffer
from whet.training.role_baselines import RoleBaselines
from whet.types import Group, Prompt, Sample

STATE, GROUPS = "history.json", "replay.json"  # files of a checkpoint


class History:
    """The parts that a config asks for; the others are None."""

    def __init__(self, config: Config, loader: PromptLoader[Prompt]) -> None:
        algorithm, curriculum = config.algorithm, config.data.curriculum
        self._loader, self._expects = loader, algorithm.adv_estimator == "spo"
        wanted = curriculum.active or self._expects
        self.rates = PassRates(curriculum, config.data.seed, len(loader)) if wanted else None
        self.roles = RoleBaselines(algorithm) if algorithm.adv_estimator == "rae" else None
        buffer = algorithm.replay_buffer
        self.buffer = ReplayBuffer(buffer, config.worker.rollout.seed) if buffer.size else None
        if curriculum.active:
            assert self.rates is not None
            loader.choose = self.rates.choose

    def observe(self, groups: Sequence[Group]) -> None:
        """Take in the groups of a draw."""
        if self.rates is not None:
            self.rates.observe(groups, self._expects)
        if self.roles is not None:
            self.roles.observe(groups)

    def learned(self) -> str | None:
        """Return a sentence if so many rows are retired that the next draw could not be made, None otherwise."""
        return None if self.rates is None else self.rates.learned(self._loader.batch_size)

    def replayed(self, step: int, version: int) -> list[Group]:
        """Return earlier groups that this step trains on again."""
        return [] if self.buffer is None else self.buffer.draw(step, version)

    def keep(self, groups: Sequence[Group]) -> None:
        """Keep what a step trained on for the first time, to be replayed."""
        if self.buffer is not None:
            self.buffer.add(groups)

    def relabel(self, samples: Sequence[Sample], log_probs_BT: Tensor) -> None:
        """Keep log-probs (B, T) that the learner computed with the groups of this step that are kept."""
        if self.buffer is not None:
            self.buffer.relabel(samples, log_probs_BT)

    def metrics(self) -> dict[str, float]:
        """Return metrics of all parts."""
        found = {} if self.buffer is None else {"batch/replay_buffer": float(len(self.buffer.groups))}
        for part in (self.rates, self.roles):
            found |= {} if part is None else part.metrics()
        return found

    def save(self, folder: Path) -> None:
        """Write everything into a checkpoint."""
        (folder / STATE).write_text(json.dumps(self._state()), encoding="utf-8")
        if self.buffer is not None:
            save_groups(self.buffer.groups, folder / GROUPS)

    def load(self, folder: Path) -> None:
        """Go on with what a checkpoint holds; parts that its run did not have start afresh."""
        if (folder / STATE).exists():
            try:
                self._restore(json.loads((folder / STATE).read_text(encoding="utf-8")))
            except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
                raise UserError(f"{folder / STATE} is damaged ({error}); choose another checkpoint") from error
        if self.buffer is not None and (folder / GROUPS).exists():
            self.buffer.groups = load_groups(folder / GROUPS, self._loader)

    def snapshot(self) -> Any:
        """Return what `rewind` goes back to."""
        return copy.deepcopy(self._state()), None if self.buffer is None else list(self.buffer.groups)

    def rewind(self, snapshot: Any) -> None:
        """Go back to a snapshot."""
        state, groups = snapshot
        self._restore(state)
        if self.buffer is not None:
            self.buffer.groups = groups

    def _state(self) -> dict[str, Any]:
        parts = {"rates": self.rates, "roles": self.roles}
        return {name: part.state_dict() for name, part in parts.items() if part is not None}

    def _restore(self, state: dict[str, Any]) -> None:
        if self.rates is not None and "rates" in state:
            self.rates.load_state_dict(state["rates"])
        if self.roles is not None and "roles" in state:
            self.roles.load_state_dict(state["roles"])
