"""The policy's objective: policy loss, KL divergence, entropy terms, put together as the config says.

Loss = policy loss [+ kl · KL to the reference] [− entropy · entropy] [+ entropy_penalty_coef · (−log prob)]
[+ observation_coef · cross-entropy of what tools and environments wrote (ECHO; Shrivastava et al., 2026)]. With a
teacher: reward_coef · policy loss + coef · divergence from the teacher [+ the other terms]. Every term goes through the
mini-batch's one normaliser. Coefficients are fixed by the config, or moved from step to step by what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from whet.algos import LossInputs, find_policy_loss, preparation_of
from whet.algos.aggregate import Aggregator, count
from whet.algos.controllers import AdaptiveEntropy, AdaptiveKL, entropy_controller, kl_controller
from whet.algos.quirks import quirks
from whet.config.schema import Config
from whet.config.schema.algorithm import AlgorithmConfig
from whet.learn.protocol import MiniBatchLoss, Objective
from whet.learn.scoring import Scored
from whet.training.experience import Experience, on_device, penalises_kl

if TYPE_CHECKING:
    from whet.training.token_selection import TokenSelection

# The losses of bypass mode, by the names of algorithm.rollout_correction.loss_type.
_BYPASS_LOSSES = {"ppo_clip": "default", "reinforce": "gpg"}


@dataclass(frozen=True, slots=True)
class Coefficients:
    """The coefficients of the loss's terms in one step; controllers may set others than the config's."""

    kl: float
    entropy: float

    @classmethod
    def of(cls, config: Config) -> Coefficients:
        """Return the config's: `algorithm.kl_coef` and `worker.actor.entropy_coeff`."""
        return cls(config.algorithm.kl_coef, config.worker.actor.entropy_coeff)


@dataclass(frozen=True)
class PolicyObjective(Objective[Scored]):
    """The loss of one step's update on an experience; rows are the experience's."""

    experience: Experience
    config: Config
    coefficients: Coefficients
    corrections: list[dict[str, float]] = field(default_factory=list)  # metrics of each mini-batch's correction

    def begin(self, rows: list[int], current: Callable[[], Tensor]) -> PolicyLoss | None:
        """Return the loss of the mini-batch of these rows, or None if no token of them is left to train on."""
        config, algorithm, batch = self.config, self.config.algorithm, self.experience
        name = policy_loss_name(config)
        # 1. In bypass mode, weight and reject tokens by the current policy's ratio to the sampler.
        if corrects_in_loss(algorithm):
            from whet.training.correction import corrected_mini_batch

            batch, found = corrected_mini_batch(batch, rows, current(), algorithm)
            self.corrections.append(found)
        # 2. Counts over the whole mini-batch, by which the losses of all micro-batches are divided.
        whole = count(batch.mask_BT[rows], horizon=config.data.max_response_length)
        if not whole.tokens:
            return None
        aggregate = Aggregator(config.worker.actor.loss_avg_mode, whole, quirks(algorithm.match))
        # 3. Tokens that receive the policy gradient, and weights of responses (VPPO).
        selection = None
        if algorithm.selects_tokens:
            from whet.training.token_selection import select_tokens

            selection = select_tokens(batch, rows, algorithm)
        # 4. What a loss prepares from the log-probs of the whole mini-batch.
        prepared: dict[str, Tensor] = {}
        if (prepare := preparation_of(name)) is not None:
            inputs = batch.loss_inputs(rows, current())
            inputs = inputs if selection is None else selection.weighted(inputs, range(len(rows)))
            prepared = prepare(inputs, config.worker.actor)
        return PolicyLoss(name, rows, batch, config, self.coefficients, aggregate, selection, prepared)

    def metrics(self) -> dict[str, float]:
        """Return the rollout correction's metrics, averaged over mini-batches."""
        names = dict.fromkeys(name for found in self.corrections for name in found)
        columns = {name: [found[name] for found in self.corrections if name in found] for name in names}
        return {name: sum(values) / len(values) for name, values in columns.items()}


@dataclass(frozen=True)
class PolicyLoss(MiniBatchLoss[Scored]):
    """The loss of one mini-batch of b rows of the experience."""

    name: str
    mini_batch: list[int]  # (b,) rows of the experience
    batch: Experience
    config: Config
    coefficients: Coefficients
    aggregate: Aggregator
    selection: TokenSelection | None
    prepared: dict[str, Tensor]  # (b, T) each

    def loss(self, outputs: Scored, rows: list[int]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return loss and metrics of the micro-batch of these rows of the mini-batch."""
        algorithm, aggregate = self.config.algorithm, self.aggregate
        # 1. Policy loss.
        inputs, entropy_BT = self._inputs(outputs, rows), outputs.entropy_BT
        mask_BT = inputs.mask_BT
        loss, metrics = find_policy_loss(self.name)(inputs, self.config.worker.actor, aggregate)
        metrics |= {"pg_loss": loss.detach(), "entropy": aggregate.token_mean(entropy_BT, mask_BT)}
        if self.selection is not None:
            metrics |= self.selection.metrics(aggregate, mask_BT, rows, entropy_BT)
        # 2. Divergence from the teacher.
        if algorithm.distill.active and algorithm.distill.use == "loss":
            gap = aggregate(self._divergence(outputs, rows), mask_BT)
            # Not a product with 0: a policy loss that nobody asked for may be infinite.
            taught = algorithm.distill.coef * gap
            loss = taught if algorithm.distill.alone else algorithm.distill.reward_coef * loss + taught
            metrics |= {"distill_loss": gap.detach()}
        # 3. KL divergence from the reference.
        kl_BT = self._kl(outputs, rows, mask_BT) if algorithm.use_kl_loss and penalises_kl(algorithm) else None
        if kl_BT is not None:
            kl = aggregate(kl_BT, mask_BT)
            loss = loss + self.coefficients.kl * kl
            metrics |= {"kl_loss": kl.detach()}
        # 4. Entropy bonus.
        if self.coefficients.entropy:
            bonus = aggregate(entropy_BT, mask_BT)
            loss = loss - self.coefficients.entropy * bonus
            metrics |= {"entropy_loss": bonus.detach()}
        # 5. Penalty on the sampled tokens' −log π.
        if algorithm.use_entropy_penalty:
            by_tokens = replace(aggregate, mode="token-mean") if aggregate.quirks.penalty_by_tokens else aggregate
            penalty = by_tokens(-inputs.log_probs_BT, mask_BT)
            loss = loss + algorithm.entropy_penalty_coef * penalty
            metrics |= {"entropy_penalty": penalty.detach()}
        # 6. Cross-entropy of observations (ECHO), averaged over observed tokens as the policy loss is over its own.
        if self.batch.observed_BT is not None:
            surprise = self._surprise(outputs, rows)
            loss = loss + algorithm.observation_coef * surprise
            metrics |= {"observation_loss": surprise.detach()}
        return loss, metrics

    def _surprise(self, outputs: Scored, rows: list[int]) -> Tensor:
        """Return the mean −log π of the tokens that tools and environments wrote; they are given as they are.

        A mean over responses counts all of the mini-batch, with 0 for those without observations.
        """
        assert self.batch.observed_BT is not None
        chosen, log_probs_BT = [self.mini_batch[i] for i in rows], outputs.log_probs_BT
        whole = count(self.batch.observed_BT[self.mini_batch], horizon=self.aggregate.whole.horizon)
        whole = replace(whole, sequences=len(self.mini_batch))
        observed_BT = on_device(self.batch.observed_BT[chosen, : log_probs_BT.shape[1]], log_probs_BT.device)
        inside = observed_BT.bool()
        return replace(self.aggregate, whole=whole)(torch.where(inside, -log_probs_BT, 0.0), observed_BT)

    def _inputs(self, outputs: Scored, rows: list[int]) -> LossInputs:
        """Return the micro-batch as a policy loss takes it: (B, T) each, T the width of the micro-batch."""
        log_probs_BT = outputs.log_probs_BT
        T, device = log_probs_BT.shape[1], log_probs_BT.device
        inputs = self.batch.loss_inputs([self.mini_batch[i] for i in rows], log_probs_BT)
        if self.selection is not None:
            inputs = self.selection.narrowed(self.selection.weighted(inputs, rows), rows, outputs.entropy_BT)
        inputs.prepared = {name: on_device(values[rows, :T], device) for name, values in self.prepared.items()}
        return inputs

    def _divergence(self, outputs: Scored, rows: list[int]) -> Tensor:
        """Return the divergence (B, T) from the teacher."""
        assert outputs.teacher is not None, "it is opened wherever the config has one"
        distill, own = self.config.algorithm.distill, self.batch.teacher_samples
        read = self.batch.samples if own is None else own
        chosen = [read[self.mini_batch[i]] for i in rows]
        return outputs.teacher.divergence(outputs, chosen, own is not None, distill.divergence, distill.beta)

    def _kl(self, outputs: Scored, rows: list[int], mask_BT: Tensor) -> Tensor | None:
        """Return the KL divergence (B, T) from the reference, exact or estimated; None without a reference."""
        name, ref_BT = self.config.algorithm.kl_penalty, self.batch.ref_log_probs_BT
        if name == "full" and outputs.reference is not None:
            return outputs.reference.full_kl(outputs)
        if ref_BT is None:
            return None
        # Outside the mask both are 0: an inf there would make the gradient nan.
        chosen, inside = [self.mini_batch[i] for i in rows], mask_BT.bool()
        ref_BT = on_device(ref_BT[chosen, : mask_BT.shape[1]], mask_BT.device)
        from whet.algos.kl import kl_penalty

        return kl_penalty(torch.where(inside, outputs.log_probs_BT, 0.0), torch.where(inside, ref_BT, 0.0), name)


def objective(experience: Experience, config: Config, coefficients: Coefficients | None = None) -> PolicyObjective:
    """Return the objective of a step; without coefficients, those of the config."""
    return PolicyObjective(experience, config, coefficients or Coefficients.of(config))


def policy_loss_name(config: Config) -> str:
    """Return the name of the policy loss: `worker.actor.loss_type`, or that of bypass mode."""
    correction = config.algorithm.rollout_correction
    return _BYPASS_LOSSES[correction.loss_type] if correction.bypass_mode else config.worker.actor.loss_type


def corrects_in_loss(config: AlgorithmConfig) -> bool:
    """Return True if each mini-batch needs a pass of the current policy, to be compared with the sampler."""
    correction = config.rollout_correction
    return correction.bypass_mode and bool(correction.rollout_is or correction.rollout_rs)


def warn_of_skips(metrics: dict[str, float], step: int, warn: Callable[[str], None]) -> None:
    """Warn if nothing was left of a mini-batch to train on."""
    skipped = metrics.get("actor/update_skipped", 0.0)
    if skipped:
        warn(
            f"step {step}: {skipped:.0f} of its updates skipped, because nothing was left to train on; where "
            f"rollout_corr/rollout_rs_masked_fraction is high, loosen algorithm.rollout_correction.rollout_rs_threshold"
        )


class Control:
    """One controller for the KL term and one for the entropy bonus."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._kl = kl_controller(config.algorithm)
        self._entropy = _entropy_controller(config)

    def enter(self, config: Config) -> None:
        """Go on under a stage's config; a controller starts anew only where the stage sets it otherwise."""
        before, self._config = self._config, config
        if _kl_settings(before) != _kl_settings(config):
            self._kl = kl_controller(config.algorithm)
        if _entropy_settings(before) != _entropy_settings(config):
            self._entropy = _entropy_controller(config)

    @property
    def kl(self) -> float:
        """The KL coefficient of the next step."""
        return self._kl.value

    def coefficients(self, experience: Experience) -> Coefficients:
        """What the loss on this experience weighs its terms with."""
        return Coefficients(self._kl.value, self._entropy.coefficient(experience.sampled_entropy()))

    def observe(self, experience: Experience, used: Coefficients, metrics: dict[str, float]) -> dict[str, float]:
        """Learn from a step that is done; returns the coefficients that it had, as metrics."""
        kl = metrics.get("actor/reward_kl", metrics.get("actor/kl_loss"))
        if kl is not None and math.isfinite(kl):  # a controller that took NaN would keep it for ever
            self._kl.update(kl, len(experience.samples))
        if math.isfinite(entropy := experience.sampled_entropy()):
            self._entropy.update(entropy)
        actor = self._config.worker.actor
        shown = {"actor/kl_coef": used.kl} if penalises_kl(self._config.algorithm) else {}
        if actor.adaptive_entropy.enabled or actor.entropy_coeff:
            shown["actor/entropy_coef"] = used.entropy
        if self._config.algorithm.use_entropy_penalty:
            shown["actor/entropy_penalty_coef"] = self._config.algorithm.entropy_penalty_coef
        return shown

    def state_dict(self) -> dict[str, Any]:
        """What adaptive controllers have come to; a fixed coefficient is the config's."""
        state: dict[str, Any] = {}
        if isinstance(self._kl, AdaptiveKL):
            state["kl"] = self._kl.value
        if isinstance(self._entropy, AdaptiveEntropy):
            state["entropy"] = [self._entropy.value, self._entropy.enabled]
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`, as far as the config still asks for it."""
        if isinstance(self._kl, AdaptiveKL) and "kl" in state:
            self._kl.value = state["kl"]
        if isinstance(self._entropy, AdaptiveEntropy) and "entropy" in state:
            self._entropy.value, self._entropy.enabled = state["entropy"]


def _entropy_controller(config: Config) -> Any:
    actor = config.worker.actor
    lags = quirks(config.algorithm.match).entropy_bonus_lags
    return entropy_controller(actor.entropy_coeff, actor.adaptive_entropy, lags)


def _kl_settings(config: Config) -> tuple[object, ...]:
    algorithm = config.algorithm
    return algorithm.kl_coef, algorithm.kl_type, algorithm.kl_target, algorithm.kl_horizon


def _entropy_settings(config: Config) -> tuple[object, ...]:
    return config.worker.actor.entropy_coeff, config.worker.actor.adaptive_entropy
