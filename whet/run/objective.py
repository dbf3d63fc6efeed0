"""The loss of a mini-batch, put together from the pieces that the config names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from whet.algos import find_policy_loss, kl_penalty, preparation_of
from whet.algos.aggregate import Aggregator, count
from whet.algos.quirks import quirks
from whet.config.schema import Config
from whet.learn.learner import MakeLoss, MicroLoss
from whet.run.experience import Experience


@dataclass(frozen=True, slots=True)
class Coefficients:
    """The weights of the loss's terms in this step; a controller gives others than the config's."""

    kl: float
    entropy: float

    @classmethod
    def of(cls, config: Config) -> Coefficients:
        """What the config says: `algorithm.kl_coef` and `worker.actor.entropy_coeff`."""
        return cls(config.algorithm.kl_coef, config.worker.actor.entropy_coeff)


def objective(experience: Experience, config: Config, coefficients: Coefficients | None = None) -> MakeLoss:
    """For each mini-batch (rows of the experience), the loss of its micro-batches.

    Loss = policy loss [+ kl · KL to the reference] [− entropy · entropy] [+ entropy_penalty_coef · (−log prob)], every
    term through the mini-batch's one normaliser. `coefficients` hold for one step; without them the config's do.
    """
    actor = config.worker.actor
    policy_loss, prepare = find_policy_loss(actor.loss_type), preparation_of(actor.loss_type)
    weights = coefficients or Coefficients.of(config)
    ref_BT = experience.ref_log_probs_BT if config.algorithm.use_kl_loss else None

    def make_loss(mini: list[int], current_log_probs: Callable[[], Tensor]) -> MicroLoss:
        whole = count(experience.mask_BT[mini], horizon=config.data.max_response_length)
        aggregate = Aggregator(actor.loss_avg_mode, whole, quirks(config.algorithm.match))
        prepared = {}
        if prepare is not None:
            prepared = prepare(experience.loss_inputs(mini, current_log_probs()), actor)

        def loss_of(log_probs_BT: Tensor, entropy_BT: Tensor, rows: list[int]) -> tuple[Tensor, dict[str, Tensor]]:
            chosen, T = [mini[i] for i in rows], log_probs_BT.shape[1]
            inputs = experience.loss_inputs(chosen, log_probs_BT)
            inputs.prepared = {name: values[rows, :T].to(log_probs_BT.device) for name, values in prepared.items()}
            mask = inputs.mask_BT
            loss, metrics = policy_loss(inputs, actor, aggregate)
            metrics |= {"pg_loss": loss.detach(), "entropy": aggregate.token_mean(entropy_BT, mask)}
            if ref_BT is not None:
                ref = torch.where(mask.bool(), ref_BT[chosen, :T].to(mask.device), 0.0)
                kl = aggregate(kl_penalty(inputs.log_probs_BT, ref, config.algorithm.kl_penalty), mask)
                loss = loss + weights.kl * kl
                metrics |= {"kl_loss": kl.detach()}
            if weights.entropy:
                bonus = aggregate(entropy_BT, mask)
                loss = loss - weights.entropy * bonus
                metrics |= {"entropy_loss": bonus.detach()}
            if actor.use_entropy_penalty:
                penalty = aggregate(-inputs.log_probs_BT, mask)
                loss = loss + actor.entropy_penalty_coef * penalty
                metrics |= {"entropy_penalty": penalty.detach()}
            return loss, metrics

        return loss_of

    return make_loss
