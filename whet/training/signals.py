"""Signals that an advantage estimator or the KL penalty needs, computed only if they are needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from whet.algos import needs_of
from whet.rollout.engine import SamplingParams
from whet.training.experience import for_fresh, sampler_log_probs
from whet.training.measure import StepClock
from whet.training.parts import recompute_old_log_probs
from whet.types import Sample

if TYPE_CHECKING:
    from whet.config import Config
    from whet.model.processor import Processor
    from whet.training.plan import Models
    from whet.training.rollouts import Rollouts


@dataclass(frozen=True, slots=True)
class Sources:
    """The objects that signals are computed from."""

    config: Config
    models: Models
    rollouts: Rollouts  # for responses that a signal needs besides the step's samples
    processor: Processor | None  # None for a text model


Provider = Callable[[Sources, Sequence[Sample], StepClock], Tensor]


def compute_signals(
    sources: Sources, samples: Sequence[Sample], old_log_probs_BT: Tensor, step: int, clock: StepClock
) -> dict[str, Tensor]:
    """Compute the signals of the configured estimator and penalties on scored samples, by name."""
    algorithm = sources.config.algorithm
    needs = list(needs_of(algorithm.adv_estimator))
    if sources.models.reference is not None and algorithm.kl_penalty == "full" and not algorithm.use_kl_loss:
        needs.append("full_kl")  # as a term of the loss it is computed in the update, with its gradient
    found = {name: _PROVIDERS[name](sources, samples, clock) for name in needs}
    if algorithm.needs_dependency:
        from whet.training.perception import visual_dependency

        found["dependency"] = visual_dependency(sources, samples, old_log_probs_BT, step, clock)
    return found


def old_log_probs(sources: Sources, samples: Sequence[Sample], clock: StepClock) -> Tensor:
    """Return log-probs (B, T) of the policy before the update: the sampler's, or computed by the learner.

    The learner's are those of the policy that wrote a sample only if it was written in this step; earlier samples keep
    the sampler's. With a rollout correction the learner's are used for all: importance weights correct for the policy
    that wrote a sample.
    """
    sampled = sampler_log_probs(samples)
    if not recompute_old_log_probs(sources.config):
        return sampled
    with clock.stage("old_log_probs"):
        own = sources.models.learner.log_probs(samples)
    if sources.config.algorithm.rollout_correction.active:
        return own
    return for_fresh(samples, sources.models.engine.version, own, otherwise=sampled)


def reference_log_probs(sources: Sources, samples: Sequence[Sample], clock: StepClock) -> Tensor | None:
    """Return log-probs (B, T) under the reference; None without one, or if KL is not estimated from log-probs."""
    if sources.models.reference is None or sources.config.algorithm.kl_penalty == "full":
        return None
    with clock.stage("ref_log_probs"):
        return sources.models.reference.log_probs(samples)


def _full_kl(sources: Sources, samples: Sequence[Sample], clock: StepClock) -> Tensor:
    """Return the exact KL divergence (B, T) from the reference."""
    with clock.stage("full_kl"):
        return sources.models.learner.full_kl(samples)


def _values(sources: Sources, samples: Sequence[Sample], clock: StepClock) -> Tensor:
    """Return the critic's values (B, T)."""
    assert sources.models.critic is not None, "it is built for every estimator that needs values"
    with clock.stage("values"):
        return sources.models.critic.values(samples)


def _sum_pi_squared(sources: Sources, samples: Sequence[Sample], clock: StepClock) -> Tensor:
    """Return Σ_v π(v)² (B, T) under the weights that sampled."""
    with clock.stage("sum_pi_squared"):
        return sources.models.learner.sum_pi_squared(samples)


def _baselines(sources: Sources, samples: Sequence[Sample], clock: StepClock) -> Tensor:
    """Return (B,): the score of one greedy response to each sample's prompt. Greedy sampling needs no ids."""
    prompts = {sample.group: sample.prompt for sample in samples}
    rollout = sources.config.worker.rollout
    params = SamplingParams(
        temperature=0.0,
        max_tokens=sources.config.data.max_response_length,
        stop=tuple(rollout.stop),
        ignore_eos=rollout.ignore_eos,
    )
    with clock.stage("baseline", len(prompts)) as advance:
        greedy = sources.rollouts.generate(list(prompts.values()), params, range(len(prompts)), advance)
        sources.rollouts.score(greedy)
    scores = dict(zip(prompts, (sample.reward for sample in greedy)))
    return torch.tensor([scores[sample.group] for sample in samples])


# By the names in `needs` (experience.py maps them to fields of Signals), and `full_kl`, a penalty in the reward.
_PROVIDERS: dict[str, Provider] = {
    "full_kl": _full_kl,
    "values": _values,
    "sum_pi_squared": _sum_pi_squared,
    "baselines": _baselines,
}
