"""Checks of `whet sft`: what must hold before any file is opened or weight is loaded."""

from __future__ import annotations

from whet.config.checks.required import DATA_CHECKS, model_set
from whet.config.checks.run import Check, run_checks
from whet.config.checks.sampling import SAMPLING_CHECKS
from whet.config.checks.updates import precision_problems
from whet.config.problems import raise_problems
from whet.config.schema import Config


def check_sft(config: Config) -> None:
    """Raise a `UserError` that lists everything that keeps `whet sft` from starting."""
    raise_problems(run_checks(SFT_CHECKS, config))


def sft_batch_size(config: Config) -> int:
    """Return the rows per update."""
    return config.sft.batch_size or config.data.rollout_batch_size


SFT_CHECKS: tuple[Check, ...] = (
    model_set,
    *DATA_CHECKS,
    *SAMPLING_CHECKS,
    lambda config: precision_problems(config, "actor"),
)
