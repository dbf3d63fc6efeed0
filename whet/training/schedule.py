"""The schedule of an asynchronous run: which groups each step took, and which weights drew which of their tokens.

`schedule/N.json.gz` in the run folder holds the groups of step N: sample ids, tokens in segments with the version that
drew them, log-probs and scores. `trainer.replay=RUN` trains on them again: the same weights come out, to the last bit,
on a device whose arithmetic repeats.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from whet.checkpoint.durable import replacing
from whet.config import Config
from whet.config.files import resolve_path
from whet.data.loader import PromptLoader
from whet.errors import UserError
from whet.tracking.console import Console
from whet.training.batch import BatchMaker, Draws
from whet.training.measure import StepClock
from whet.training.pending import Waiting, waiting_from_record
from whet.training.rollouts import Rollouts
from whet.training.state import TrainerState
from whet.types import Group, Prompt

FOLDER = "schedule"


class Schedule:
    """The schedule of a run, written step by step."""

    def __init__(self, run: Path) -> None:
        self._folder = run / FOLDER

    def write(self, step: int, records: Sequence[dict[str, Any]]) -> None:
        """Write the groups that a step takes, in the order in which it takes them."""
        self._folder.mkdir(exist_ok=True)
        with replacing(self._file(step)) as side:
            side.write_bytes(gzip.compress(json.dumps(records).encode(), compresslevel=1, mtime=0))

    def read(self, step: int, loader: PromptLoader[Any]) -> list[Waiting]:
        """Return the groups that a step took."""
        file = self._file(step)
        if not self.has(step):
            raise UserError(f"trainer.replay: {file} is missing, so step {step} cannot be replayed")
        try:
            records = json.loads(gzip.decompress(file.read_bytes()))
            return [waiting_from_record(record, loader) for record in records]
        except (OSError, EOFError, ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
            raise UserError(f"{file} does not hold groups of this data ({type(error).__name__}: {error})") from error

    def has(self, step: int) -> bool:
        """True if the step was recorded."""
        return self._file(step).exists()

    def forget_after(self, step: int) -> None:
        """Remove the steps that a run takes once more, after it went back to a checkpoint."""
        for file in self._folder.glob("*.json.gz"):
            number = file.name.removesuffix(".json.gz")
            if number.isdigit() and int(number) > step:
                file.unlink()

    def _file(self, step: int) -> Path:
        return self._folder / f"{step}.json.gz"


def check_replay(config: Config, steps: int) -> None:
    """Refuse a run of more steps than the one that `trainer.replay` names has recorded."""
    schedule, recorded = Schedule(resolve_path(config, str(config.trainer.replay))), 0
    while recorded < steps and schedule.has(recorded + 1):
        recorded += 1
    may_end_before = any("until" in stage for stage in config.trainer.stages)
    if recorded < steps and not may_end_before:
        raise UserError(
            f"trainer.replay={config.trainer.replay}: that run has recorded steps 1 to {recorded}, and this one has "
            f"{steps}; set trainer.max_steps={recorded}, or train the other run further"
            if recorded
            else f"trainer.replay={config.trainer.replay}: that run has recorded no step yet, and this one has {steps}"
        )


class Replay(BatchMaker):
    """Makes the batches that another run has made; nothing is sampled or scored for them."""

    def __init__(
        self,
        rollouts: Rollouts,
        loader: PromptLoader[Prompt],
        state: TrainerState,
        console: Console,
        schedule: Schedule,
    ) -> None:
        super().__init__(rollouts, loader, state, console)
        self._prompts, self._schedule = loader, schedule
        self._step, self._left = -1, [Group(0, [])][:0]

    def draw(self, config: Config, clock: StepClock, draws: Draws, missing: int) -> list[Group]:
        """Return the next groups that the step took."""
        state = self._state
        if self._step != state.step:
            taken = self._schedule.read(state.step, self._prompts)
            self._step, self._left = state.step, [each.group for each in taken if each.group is not None]
            state.samples_drawn = max([state.samples_drawn, *(each.ids.stop for each in taken)])
        if not self._left:
            raise UserError(
                f"trainer.replay: step {state.step} of the other run took fewer groups than this one wants; the "
                "batch size and the filters have to be the same"
            )
        size = min(missing, config.data.mini_rollout_batch_size or missing)
        groups, self._left = self._left[:size], self._left[size:]
        return self.note(config, draws, groups)
