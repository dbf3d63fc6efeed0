"""The rules, one module each; `rules` returns those that make sense for a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.config import Config
from whet.doctor.findings import Rule
from whet.doctor.rules.clipping import ClippedRatios
from whet.doctor.rules.collapsed import CollapsedReward
from whet.doctor.rules.cut import CutResponses
from whet.doctor.rules.drift import LogProbDrift
from whet.doctor.rules.entropy import EntropyCollapse
from whet.doctor.rules.failing_rewards import FailingRewards
from whet.doctor.rules.fallen import FallenReward
from whet.doctor.rules.flat import FlatRun
from whet.doctor.rules.gradients import ExplodingGradients
from whet.doctor.rules.idle import IdleDevice
from whet.doctor.rules.kl import KlBlowUp
from whet.doctor.rules.length import lengthened, shortened
from whet.doctor.rules.opposed import OpposedScores
from whet.doctor.rules.overfit import FallingValidation
from whet.doctor.rules.slow_rewards import SlowRewards
from whet.doctor.rules.staleness import StaleSamples
from whet.doctor.rules.ties import Ties

if TYPE_CHECKING:
    from whet.doctor.samples import SampleRule


def rules(config: Config, total_steps: int | None = None) -> list[Rule]:
    """Return the rules of a run with this config."""
    return rules_for(None if config.worker.rollout.ignore_eos else config.data.max_response_length, total_steps)


def rules_for(length_limit: int | None, total_steps: int | None = None) -> list[Rule]:
    """Return new rules; `length_limit` is None where responses are meant to reach theirs."""
    found: list[Rule] = [
        Ties(total_steps),
        LogProbDrift(),
        FallingValidation(),
        EntropyCollapse(),
        KlBlowUp(),
        ExplodingGradients(),
        shortened(),
        lengthened(),
        ClippedRatios(),
        SlowRewards(),
        StaleSamples(),
        FallenReward(),
        CollapsedReward(),
        FlatRun(),
        FailingRewards(),
        IdleDevice(),
        OpposedScores(),
    ]
    return found if length_limit is None else [*found, CutResponses(length_limit)]


def sample_rules() -> list[SampleRule]:
    """Return the rules that read samples, once a run has some."""
    from whet.doctor.rules.rows import duplicated, leaked
    from whet.doctor.rules.texts import all_alike, empty, repeated, same_texts, unfinished

    return [duplicated, leaked, all_alike, repeated, same_texts, unfinished, empty]
