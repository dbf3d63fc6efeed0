"""The loss of a mini-batch, put together from the pieces that the config names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from whet.algos import find_policy_loss, kl_penalty, preparation_of
from whet.algos.aggregate import Aggregator, count
from whet.algos.quirks import quirks
from whet.config.schema import Config
from whet.learn.learner import MicroLoss
from whet.learn.reference import Reference
from whet.learn.scoring import Scored
from whet.training.correction import corrected_mini_batch, corrects_in_loss, policy_loss_name
from whet.training.experience import Experience, on_device


@dataclass(frozen=True, slots=True)
class Coefficients:
    """The weights of the loss's terms in this step; a controller gives others than the config's."""

    kl: float
    entropy: float

    @classmethod
    def of(cls, config: Config) -> Coefficients:
        """What the config says: `algorithm.kl_coef` and `worker.actor.entropy_coeff`."""
        return cls(config.algorithm.kl_coef, config.worker.actor.entropy_coeff)


@dataclass(frozen=True)
class Objective:
    """For each mini-batch (rows of the experience), the loss of its micro-batches.

    Loss = policy loss [+ kl · KL to the reference] [− entropy · entropy] [+ entropy_penalty_coef · (−log prob)], every
    term through the mini-batch's one normaliser. `coefficients` hold for one step. The reference itself is looked at
    only where KL is exact (kl_penalty=full); without it an objective can be sent to another process.
    """

    experience: Experience
    config: Config
    coefficients: Coefficients
    reference: Reference | None = None

    def __call__(self, mini: list[int], current_log_probs: Callable[[], Tensor]) -> MicroLoss | None:
        """The loss of these rows, or None where nothing of them is left to train on."""
        config, actor, weights = self.config, self.config.worker.actor, self.coefficients
        name = policy_loss_name(config)
        policy_loss, prepare = find_policy_loss(name), preparation_of(name)
        kl_of = _kl_term(self.experience, config, self.reference)
        batch = self.experience
        if corrects_in_loss(config.algorithm):
            batch = corrected_mini_batch(batch, mini, current_log_probs(), config.algorithm)
        whole = count(batch.mask_BT[mini], horizon=config.data.max_response_length)
        if not whole.tokens:
            return None
        aggregate = Aggregator(actor.loss_avg_mode, whole, quirks(config.algorithm.match))
        focus = None
        if config.algorithm.selects_tokens:
            from whet.training.token_selection import focus_of

            focus = focus_of(batch, mini, config.algorithm)
        prepared = {}
        if prepare is not None:
            inputs = batch.loss_inputs(mini, current_log_probs())
            prepared = prepare(inputs if focus is None else focus.weighed(inputs, range(len(mini))), actor)

        def loss_of(scored: Scored, rows: list[int]) -> tuple[Tensor, dict[str, Tensor]]:
            log_probs_BT, entropy_BT = scored.log_probs_BT, scored.entropy_BT
            chosen, T = [mini[i] for i in rows], log_probs_BT.shape[1]
            inputs = batch.loss_inputs(chosen, log_probs_BT)
            if focus is not None:
                inputs = focus.narrowed(focus.weighed(inputs, rows), rows, entropy_BT)
            inputs.prepared = {
                name: on_device(values[rows, :T], log_probs_BT.device) for name, values in prepared.items()
            }
            mask = inputs.mask_BT
            loss, metrics = policy_loss(inputs, actor, aggregate)
            metrics |= {"pg_loss": loss.detach(), "entropy": aggregate.token_mean(entropy_BT, mask)}
            if focus is not None:
                metrics |= focus.metrics(aggregate, mask, rows, entropy_BT)
            if kl_of is not None:
                kl = aggregate(kl_of(scored, chosen, mask), mask)
                loss = loss + weights.kl * kl
                metrics |= {"kl_loss": kl.detach()}
            if weights.entropy:
                bonus = aggregate(entropy_BT, mask)
                loss = loss - weights.entropy * bonus
                metrics |= {"entropy_loss": bonus.detach()}
            if config.algorithm.use_entropy_penalty:
                by_tokens = replace(aggregate, mode="token-mean") if aggregate.quirks.penalty_by_tokens else aggregate
                penalty = by_tokens(-inputs.log_probs_BT, mask)
                loss = loss + config.algorithm.entropy_penalty_coef * penalty
                metrics |= {"entropy_penalty": penalty.detach()}
            return loss, metrics

        return loss_of


def objective(
    experience: Experience,
    config: Config,
    coefficients: Coefficients | None = None,
    reference: Reference | None = None,
) -> Objective:
    """The objective of a step; without coefficients of its own the config's hold."""
    return Objective(experience, config, coefficients or Coefficients.of(config), reference)


def _kl_term(
    experience: Experience, config: Config, reference: Reference | None
) -> Callable[[Scored, list[int], Tensor], Tensor] | None:
    """(B, T) of KL to the reference for a micro-batch, its rows of the experience and its mask; None for no term."""
    name, ref_BT = config.algorithm.kl_penalty, experience.ref_log_probs_BT
    if not config.algorithm.use_kl_loss:
        return None
    if name == "full" and reference is not None:
        return lambda scored, rows, mask: reference.full_kl(scored)
    if ref_BT is None:
        return None

    def estimate(scored: Scored, rows: list[int], mask: Tensor) -> Tensor:
        # Outside the mask both are 0: an inf there would make a nan of the gradient.
        inside, ref = mask.bool(), on_device(ref_BT[rows, : mask.shape[1]], mask.device)
        return kl_penalty(torch.where(inside, scored.log_probs_BT, 0.0), torch.where(inside, ref, 0.0), name)

    return estimate
