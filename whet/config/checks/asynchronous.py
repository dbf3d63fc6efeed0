"""Checks of the keys of asynchronous training and of its replay."""

from __future__ import annotations

from collections.abc import Iterator

from whet.config.checks.run import Check
from whet.config.files import resolve_path, run_folder
from whet.config.schema import Config


def _staleness(config: Config) -> Iterator[str]:
    trainer = config.trainer
    if trainer.on_stale != "wait" and trainer.max_staleness == 0:
        yield (
            f"trainer.on_stale={trainer.on_stale}: with trainer.max_staleness=0 no group gets old; set "
            "max_staleness to 1 or more, or leave on_stale out"
        )

    ahead = trainer.steps_ahead
    if ahead is not None and ahead > trainer.max_staleness:
        yield (
            f"trainer.steps_ahead={ahead}: what is sampled {ahead} steps ahead gets older than "
            f"trainer.max_staleness={trainer.max_staleness}; lower the one or raise the other"
        )


def _replay(config: Config) -> Iterator[str]:
    if config.trainer.replay is None:
        return
    run = resolve_path(config, config.trainer.replay)
    if not (run / "schedule").is_dir():
        yield (
            f"trainer.replay={config.trainer.replay}: there is no schedule in {run}; name the folder of a run that was "
            "trained with trainer.max_staleness of 1 or more"
        )
    elif run.resolve() == run_folder(config).resolve():
        yield (
            f"trainer.replay={config.trainer.replay} is the folder of this very run; give the replay another "
            "trainer.experiment_name or trainer.save_checkpoint_path"
        )


ASYNC_CHECKS: tuple[Check, ...] = (_staleness, _replay)
