"""The model that an argument of the command line names: a run folder, a checkpoint, a model folder or a name.

A run folder stands for its best checkpoint (by validation, else the last), under the run's own config.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from whet.assets.store import PREFIX
from whet.checkpoint.choosing import require_choice
from whet.checkpoint.manifest import MANIFEST, STEP, step_of
from whet.config.checks.files import HUB_ID
from whet.config.problems import hint
from whet.config.texts import printable
from whet.errors import UserError

CONFIG = "config.yaml"
_CONFIG_FILES = (".yaml", ".yml")
MODEL = "worker.actor.model.model_path"
KINDS = f"a run folder (which has a {CONFIG}), a checkpoint (global_step_N), a model folder (config.json) or a hub id"
# Of a run's config: jobs that take a model run on one device, and run no code that a folder says is to be trusted.
_ALWAYS = ("trainer.n_gpus_per_node=1", "trainer.nnodes=1", "worker.actor.model.trust_remote_code=false")


@dataclass(frozen=True)
class Target:
    """A model, and the checkpoint and run that it is from, if any."""

    model: str | None  # folder, hub id or built-in name; None for a checkpoint that holds adapters alone
    checkpoint: Path | None = None
    run: Path | None = None  # folder with the config that trained it
    reason: str = ""  # why this checkpoint of the run

    @property
    def step(self) -> int | None:
        """Training step of the checkpoint."""
        return step_of(self.checkpoint) if self.checkpoint else None

    @property
    def name(self) -> str:
        """A short name: of the run, of the checkpoint, or the last part of the model's."""
        return (self.run or self.checkpoint or Path(self.model or "")).name

    def __str__(self) -> str:
        if self.checkpoint is None:
            return f"model: {self.model}"
        why = f" ({self.reason})" if self.reason else ""
        config = f", config: {self.run / CONFIG}" if self.run else ""
        return f"checkpoint: {self.checkpoint}{why}{config}"

    def require_model(self) -> str:
        """Return the model's folder or name; a `UserError` if there are only adapters."""
        if self.model is None:
            raise UserError(
                f"{self.checkpoint} holds adapters only; write a whole model first: whet merge {self.checkpoint} "
                "FOLDER BASE"
            )
        return self.model

    def sampling_arguments(self, own_config: bool = True) -> list[str]:
        """Return the arguments that let a job sample from it, adapters included, under the run's config.

        With `own_config` false the caller names another config, and only the model is taken from here.
        """
        if self.checkpoint is None or self.run is None:
            return [f"{MODEL}={self.require_model()}"]
        if not own_config:
            return [f"trainer.load_checkpoint_path={self.checkpoint}"]
        return [
            f"config={self.run / CONFIG}",
            f"trainer.load_checkpoint_path={self.checkpoint}",
            f"trainer.save_checkpoint_path={self.run}",
            *_ALWAYS,
        ]

    def report_arguments(self) -> list[str]:
        """Return the argument that gives each checkpoint of a run a report of its own."""
        if self.run is None or self.checkpoint is None:
            return []
        return [f"eval.output={self.run / 'eval' / self.checkpoint.name}"]

    def serving_arguments(self, own_config: bool = True) -> list[str]:
        """Return the arguments that let `whet serve` load it as a model of its own."""
        model = [f"{MODEL}={self.require_model()}"]
        if self.run is None or not own_config:
            return model
        named = [f"serve.model_name={self.run.name}"] if self.reason else []
        return [f"config={self.run / CONFIG}", *model, "worker.actor.model.lora.rank=0", *named, *_ALWAYS]


def resolve(text: str) -> Target:
    """Find the model that an argument names; a `UserError` says what it is if it is none."""
    path = Path(os.path.expanduser(text))
    if not path.exists():
        if text.startswith(PREFIX) or (HUB_ID.fullmatch(text) and not path.parent.is_dir()):
            return Target(model=text)
        raise UserError(f"{printable(text)}: there is no such folder; name {KINDS}{_near(path)}")
    if not path.is_dir():
        raise UserError(f"{printable(text)} is a file; name {KINDS}")
    folder = path.absolute()
    if (folder / MANIFEST).is_file() or STEP.fullmatch(folder.name):
        return _checkpoint(folder)
    if (folder / "config.json").is_file():
        return Target(model=str(folder))
    if is_run(folder):
        choice = require_choice(folder)
        return replace(_checkpoint(choice.checkpoint.path), run=folder, reason=choice.reason)
    runs = sorted(file.parent for depth in ("*", "*/*") for file in folder.glob(f"{depth}/{CONFIG}"))
    if runs:
        listed = ", ".join(str(each.relative_to(folder)) for each in runs[:10])
        raise UserError(f"{folder} holds runs: {listed}; name one of them, such as {runs[0]}")
    raise UserError(f"{folder} holds no model: name {KINDS}")


def is_run(folder: Path) -> bool:
    """True for the folder of a run; a checkpoint in it is none."""
    return (folder / CONFIG).is_file() and not (folder / MANIFEST).is_file()


def split_target(arguments: list[str]) -> tuple[Target | None, list[str]]:
    """Return the target that stands first, before any key=value, and the other arguments."""
    if not arguments or "=" in arguments[0] or arguments[0].startswith("-") or arguments[0].endswith(_CONFIG_FILES):
        return None, arguments
    return resolve(arguments[0]), arguments[1:]


def names_config(arguments: list[str]) -> bool:
    """True if an argument names a config file."""
    return any(argument.startswith("config=") for argument in arguments)


def _checkpoint(folder: Path) -> Target:
    model = folder / "actor" / "huggingface"
    if not (folder / MANIFEST).is_file() and not (model / "config.json").is_file():
        raise UserError(f"{folder} holds no checkpoint: it has no {MANIFEST}; name {KINDS}")
    run = folder.parent if (folder.parent / CONFIG).is_file() else None
    return Target(str(model) if (model / "config.json").is_file() else None, folder, run)


def _near(path: Path) -> str:
    siblings = os.listdir(path.parent) if path.parent.is_dir() else []
    return hint(path.name, siblings)
