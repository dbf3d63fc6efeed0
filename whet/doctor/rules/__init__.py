"""The rules, one module each; `rules` returns those that make sense for a run."""

from __future__ import annotations

from whet.config import Config
from whet.doctor.findings import Rule
from whet.doctor.rules.clipping import ClippedRatios
from whet.doctor.rules.cut import CutResponses
from whet.doctor.rules.drift import LogProbDrift
from whet.doctor.rules.entropy import EntropyCollapse
from whet.doctor.rules.fallen import FallenReward
from whet.doctor.rules.gradients import ExplodingGradients
from whet.doctor.rules.kl import KlBlowUp
from whet.doctor.rules.lengthened import LengthenedResponses
from whet.doctor.rules.overfit import FallingValidation
from whet.doctor.rules.shortened import ShortenedResponses
from whet.doctor.rules.slow_rewards import SlowRewards
from whet.doctor.rules.staleness import StaleSamples
from whet.doctor.rules.ties import Ties


def rules(config: Config) -> list[Rule]:
    """Return the rules of a run with this config."""
    return rules_for(None if config.worker.rollout.ignore_eos else config.data.max_response_length)


def rules_for(length_limit: int | None) -> list[Rule]:
    """Return new rules; `length_limit` is None where responses are meant to reach theirs."""
    found: list[Rule] = [
        Ties(),
        LogProbDrift(),
        FallingValidation(),
        EntropyCollapse(),
        KlBlowUp(),
        ExplodingGradients(),
        ShortenedResponses(),
        LengthenedResponses(),
        ClippedRatios(),
        SlowRewards(),
        StaleSamples(),
        FallenReward(),
    ]
    return found if length_limit is None else [*found, CutResponses(length_limit)]
