"""Run the combinations of a sweep one after the other, each in a process of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from whet.config import Config, load_config, run_folder
from whet.config.files import anchored
from whet.errors import UserError
from whet.sweeps.grid import Combination, Grid
from whet.system.child import run_child

Load = Callable[[list[str]], Config]
INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Planned:
    """A run of a sweep with its folder, arguments and checked config."""

    name: str
    folder: Path
    arguments: list[str]
    config: Config

    @property
    def is_finished(self) -> bool:
        """True if a run with this very config has reached its last step."""
        return ended_well(self.folder) and _stored(self.folder) == anchored(self.config).stored()


def plan(grid: Grid, load: Load) -> tuple[Path, list[Planned]]:
    """Return the folder of the sweep and its runs; a mistake in any of them is a `UserError` before one starts."""
    first = grid.combinations[0]
    folder = run_folder(load([*grid.shared, *first.arguments])).absolute()
    if (folder / "metrics.jsonl").exists():
        raise UserError(f"{folder} holds a run; give the sweep a name of its own: trainer.experiment_name=NAME")
    return folder, [_planned(grid, each, folder, load) for each in grid.combinations]


def _planned(grid: Grid, combination: Combination, folder: Path, load: Load) -> Planned:
    own = folder / combination.name
    arguments = [
        *(each for each in grid.shared if not each.startswith(("trainer.experiment_name=", _PATH))),
        *combination.arguments,
        f"trainer.experiment_name={combination.name}",
        f"{_PATH}{own}",
    ]
    return Planned(combination.name, own, arguments, load(arguments))


_PATH = "trainer.save_checkpoint_path="


def run_all(planned: list[Planned], say: Callable[[str], None]) -> dict[str, int]:
    """Run what is not finished yet; return the exit code of each run that was started or skipped (0).

    A run that fails does not keep the others from running. An interrupt ends the run that is under way, which saves
    its state, and no other one is started.
    """
    codes: dict[str, int] = {}
    for number, each in enumerate(planned, 1):
        if each.is_finished:
            say(f"── run {number} of {len(planned)}: {each.name}: finished before")
            codes[each.name] = 0
            continue
        say(f"── run {number} of {len(planned)}: {each.name}")
        code, stopped = _run(each)
        codes[each.name] = code
        if stopped or code == INTERRUPTED:
            codes[each.name] = INTERRUPTED
            break
    return codes


def _run(planned: Planned) -> tuple[int, bool]:
    """Train; return the exit code, 1 for a run that a signal stopped early, and whether this process was stopped."""
    command = [sys.executable, "-m", "whet", "train", *planned.arguments]
    code, stopped = run_child(command)
    if code == 0 and not stopped and not ended_well(planned.folder):
        code = 1
    return code, stopped


def ended_well(folder: Path) -> bool:
    """Return True if the closing lines in a run's log are those of one that reached its last step."""
    try:
        with (folder / "run.log").open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 8192))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return False
    closing = [line for line in lines if line.startswith(("finished after ", "nothing was trained", "stopped after "))]
    return bool(closing) and not closing[-1].startswith("stopped")


def _stored(folder: Path) -> dict[str, object] | None:
    try:
        return load_config([f"config={folder / 'config.yaml'}"]).stored()
    except UserError:  # of another version
        return None
