"""Signals that an advantage estimator or the KL penalty needs, computed only if they are needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from whet.algos import needs_of
from whet.rollout.engine import SamplingParams
from whet.training.experience import for_fresh, penalises_kl, sampler_log_probs, with_log_probs
from whet.training.measure import StepClock
from whet.types import Sample

if TYPE_CHECKING:
    from whet.config import Config
    from whet.model.processor import Processor
    from whet.rollout.engine import Engine
    from whet.training.models import Models
    from whet.training.rollouts import Rollouts


@dataclass(frozen=True, slots=True)
class SignalInputs:
    """The objects that signals are computed from."""

    config: Config
    models: Models
    rollouts: Rollouts  # for responses that a signal needs besides the step's samples
    processor: Processor | None  # None for a text model


Provider = Callable[[SignalInputs, Sequence[Sample], StepClock], Tensor]


def compute_signals(
    inputs: SignalInputs, samples: Sequence[Sample], old_log_probs_BT: Tensor, step: int, clock: StepClock
) -> dict[str, Tensor]:
    """Compute the signals of the configured estimator and penalties on scored samples, by name."""
    algorithm = inputs.config.algorithm
    needs = [name for name in needs_of(algorithm.adv_estimator) if name in _PROVIDERS]
    exact = inputs.models.reference is not None and algorithm.kl_penalty == "full" and penalises_kl(algorithm)
    if exact and not algorithm.use_kl_loss:
        needs.append("full_kl")  # as a term of the loss it is computed in the update, with its gradient
    found = {name: _PROVIDERS[name](inputs, samples, clock) for name in needs}
    if algorithm.needs_dependency:
        from whet.training.perception import visual_dependency

        found["dependency"] = visual_dependency(inputs, samples, old_log_probs_BT, step, clock)
    if algorithm.distill.needs_log_probs:
        found["teacher_log_probs"] = _teacher_log_probs(inputs, samples, clock)
    return found


def old_log_probs(inputs: SignalInputs, samples: Sequence[Sample], clock: StepClock) -> Tensor:
    """Return log-probs (B, T) of the policy before the update: the sampler's, or computed by the learner.

    The learner's are those of the policy that wrote a sample only if it was written in this step; earlier samples keep
    the sampler's. With a rollout correction the learner's are used for all: importance weights correct for the policy
    that wrote a sample.
    """
    sampled = sampler_log_probs(samples)
    if not recomputes_old_log_probs(inputs.config, inputs.models.engine):
        return sampled
    with clock.stage("old_log_probs"):
        own = inputs.models.learner.log_probs(samples)
    if inputs.config.algorithm.rollout_correction.active:
        return own
    return for_fresh(samples, inputs.models.engine.version, own, otherwise=sampled)


def recomputes_old_log_probs(config: Config, engine: Engine) -> bool:
    """Return True if old log-probs need a pass of their own."""
    return needs_old_log_probs(config, engine.capabilities.exact_log_probs)


def needs_old_log_probs(config: Config, exact_log_probs: bool) -> bool:
    """Return the same for an engine that is not open: `exact_log_probs` is one of its capabilities.

    With one update per rollout and an engine of exact log-probs the sampler's numbers are the learner's own. With more
    updates the ratio is taken against them many times over, and another engine, or one on devices of its own where
    nothing is sharded, computes them differently: then they are made by the learner.
    """
    actor, correction = config.worker.actor, config.algorithm.rollout_correction
    if actor.recompute_old_log_probs is not None:
        return actor.recompute_old_log_probs
    if correction.active:  # which compares the learner's with the sampler's, or takes the latter for old ones
        return not correction.bypass_mode
    if config.worker.rollout.plays_episodes:
        return True  # which turns were decoded together depends on when environments answered, and rounding on that
    most_groups = config.data.rollout_batch_size * config.trainer.rejection_sample_multiplier
    one_update = actor.ppo_epochs == 1 and actor.global_batch_size >= most_groups
    own = exact_log_probs and config.trainer.placement.rollout is None
    return not (one_update and own)


def settle_log_probs(inputs: SignalInputs, samples: Sequence[Sample]) -> None:
    """Have episodes that a later step trains on keep the learner's log-probs.

    Of the sampler's, the last bits depend on when environments answered: a resumed run would not repeat them.
    """
    config, version = inputs.config, inputs.models.engine.version
    if not samples or not config.worker.rollout.plays_episodes or config.algorithm.rollout_correction.active:
        return
    if recomputes_old_log_probs(config, inputs.models.engine):
        for sample, row_T in zip(samples, inputs.models.learner.log_probs(samples).tolist(), strict=True):
            sample.segments = with_log_probs(sample, row_T, version).segments


def reference_log_probs(inputs: SignalInputs, samples: Sequence[Sample], clock: StepClock) -> Tensor | None:
    """Return log-probs (B, T) under the reference; None without one, or if KL is not estimated from log-probs."""
    algorithm = inputs.config.algorithm
    if inputs.models.reference is None or (algorithm.kl_penalty == "full" and not algorithm.compares_with_reference):
        return None
    with clock.stage("ref_log_probs"):
        return inputs.models.reference.log_probs(samples)


def _full_kl(inputs: SignalInputs, samples: Sequence[Sample], clock: StepClock) -> Tensor:
    """Return the exact KL divergence (B, T) from the reference."""
    with clock.stage("full_kl"):
        return inputs.models.learner.full_kl(samples)


def _teacher_log_probs(inputs: SignalInputs, samples: Sequence[Sample], clock: StepClock) -> Tensor:
    """Return log-probs (B, T) under the teacher."""
    assert inputs.models.teacher is not None, "it is opened wherever the config has one"
    with clock.stage("teacher"):
        return inputs.models.teacher.model.log_probs(inputs.models.teacher.samples(samples))


def _values(inputs: SignalInputs, samples: Sequence[Sample], clock: StepClock) -> Tensor:
    """Return the critic's values (B, T)."""
    assert inputs.models.critic is not None, "it is built for every estimator that needs values"
    with clock.stage("values"):
        return inputs.models.critic.values(samples)


def _sum_pi_squared(inputs: SignalInputs, samples: Sequence[Sample], clock: StepClock) -> Tensor:
    """Return Σ_v π(v)² (B, T) under the weights that sampled."""
    with clock.stage("sum_pi_squared"):
        return inputs.models.learner.sum_pi_squared(samples)


def _baselines(inputs: SignalInputs, samples: Sequence[Sample], clock: StepClock) -> Tensor:
    """Return (B,): the score of one greedy response to each sample's prompt. Greedy sampling needs no ids."""
    prompts = {sample.group: sample.prompt for sample in samples}
    rollout = inputs.config.worker.rollout
    params = SamplingParams(
        temperature=0.0,
        max_tokens=inputs.config.data.max_response_length,
        stop=tuple(rollout.stop),
        ignore_eos=rollout.ignore_eos,
    )
    with clock.stage("baseline", len(prompts)) as advance:
        greedy = inputs.rollouts.generate(list(prompts.values()), params, range(len(prompts)), advance)
        inputs.rollouts.score(greedy)
    scores = dict(zip(prompts, (sample.reward for sample in greedy)))
    return torch.tensor([scores[sample.group] for sample in samples])


def _states(inputs: SignalInputs, samples: Sequence[Sample], clock: StepClock) -> Tensor:
    """Return (B, T): the number of the state that each turn was taken in."""
    from whet.training.turn_states import turn_states

    return turn_states(samples, inputs.config.algorithm.gigpo_anchor)


# By the names in `needs` (experience.py maps them to fields of Signals), and `full_kl`, a penalty in the reward.
_PROVIDERS: dict[str, Provider] = {
    "full_kl": _full_kl,
    "values": _values,
    "sum_pi_squared": _sum_pi_squared,
    "baselines": _baselines,
    "states": _states,
}
