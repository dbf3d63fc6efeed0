"""The checkpoint of a run that its model is taken from: the best by validation, else the last."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from whet.checkpoint.manifest import Checkpoint, read_all
from whet.checkpoint.store import best_of, read_checkpoints
from whet.errors import UserError


@dataclass(frozen=True, slots=True)
class Choice:
    """A checkpoint of a run, and why it was chosen."""

    checkpoint: Checkpoint
    reason: str


def choose(run: Path) -> Choice | None:
    """Return the checkpoint with the best validation; the last one if none was validated, None before the first."""
    found = read_checkpoints(run)
    if not found:
        return None
    best = best_of(found)
    if best is None:
        return Choice(found[0], "the last; none was validated")
    many = f"the best of {len(found)} by validation" if len(found) > 1 else "the only one"
    return Choice(best, many)


def require_choice(run: Path) -> Choice:
    """Return the same, or raise a `UserError` that says that there is no checkpoint yet."""
    choice = choose(run)
    if choice is None:
        problems = read_all(run)[1]
        if problems:
            path, problem = next(iter(problems.items()))
            raise UserError(f"none of the checkpoints in {run} can be used: {path.name} {problem.word}: {problem}")
        raise UserError(
            f"{run} is a run without a checkpoint yet, so there is no trained model: wait for the first one "
            "(trainer.save_freq, or the end of the run), or name a model"
        )
    return choice
