"""The weights that wrote a sample: a checkpoint of its policy version, or the nearest one that is left."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from whet.checkpoint.judging import verify
from whet.checkpoint.manifest import Checkpoint, UnusableError
from whet.checkpoint.store import read_checkpoints
from whet.config import Config
from whet.errors import UserError


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of a run, and how they relate to a sample."""

    checkpoint: Checkpoint | None  # None: the model that the run began with
    version: int
    exact: bool  # they are those that wrote the sample
    sentence: str


def find_weights(folder: Path, config: Config, version: int, step: int | None) -> Weights:
    """Return the checkpoint of a policy version, or of a step that is asked for (0: the first weights)."""
    found = {int(each.meta["version"]): each for each in reversed(read_checkpoints(folder)) if "version" in each.meta}
    first, first_version = _first(config)
    known: dict[int, Checkpoint | None] = {first_version: first, **found}
    if step is not None:
        chosen = _of_step(folder, step, found, first_version)
    else:
        # The nearest; of two as near, the older, which the sample's policy came from.
        chosen = min(known, key=lambda each: (abs(each - version), each))
    name = _name(known[chosen], chosen == first_version)
    if chosen == version:
        return Weights(known[chosen], chosen, True, f"{name} is the policy version {version} that wrote the sample.")
    return Weights(
        known[chosen],
        chosen,
        False,
        f"The sample was written by policy version {version}; {'this' if step is not None else 'the nearest kept'} is "
        f"{name}, version {chosen}: tokens may differ. trainer.save_freq and trainer.save_limit say which are kept.",
    )


def _of_step(folder: Path, step: int, found: dict[int, Checkpoint], first: int) -> int:
    if step == 0:
        return first
    for version, checkpoint in found.items():
        if checkpoint.step == step:
            return version
    steps = ", ".join(str(each.step) for each in sorted(found.values(), key=lambda each: each.step))
    raise UserError(
        f"{folder} has no checkpoint of step {step}; there are {steps or 'none'}, and 0 for the first weights"
    )


def _first(config: Config) -> tuple[Checkpoint | None, int]:
    """Return the checkpoint of another run that a run began with, if any, and the version that it began with."""
    named = config.trainer.load_checkpoint_path
    if named is None:
        return None, 0
    try:
        checkpoint = verify(Path(named))
    except UnusableError as error:
        raise UserError(f"trainer.load_checkpoint_path={named}, which the run began with: {error}") from error
    return checkpoint, int(checkpoint.meta.get("version", 0))


def _name(checkpoint: Checkpoint | None, first: bool) -> str:
    if checkpoint is None:
        return "the model that the run began with"
    return f"{checkpoint.path.name}{' of the run that it went on from' if first else ''}"
