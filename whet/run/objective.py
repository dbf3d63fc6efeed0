"""The loss of a mini-batch, put together from the pieces that the config names."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from whet.algos import find_policy_loss, kl_penalty, preparation_of
from whet.algos.aggregate import Aggregator, count
from whet.algos.quirks import quirks
from whet.config.schema import Config
from whet.learn.learner import MakeLoss, MicroLoss
from whet.run.experience import Experience


def objective(experience: Experience, config: Config) -> MakeLoss:
    """For each mini-batch (rows of the experience), the loss of its micro-batches.

    Loss = policy loss [+ kl_coef · KL to the reference], every term through the mini-batch's one normaliser.
    """
    policy_loss = find_policy_loss(config.worker.actor.loss_type)
    prepare = preparation_of(config.worker.actor.loss_type)
    ref_BT = experience.ref_log_probs_BT if config.algorithm.use_kl_loss else None

    def make_loss(mini: list[int], current_log_probs: Callable[[], Tensor]) -> MicroLoss:
        whole = count(experience.mask_BT[mini], horizon=config.data.max_response_length)
        aggregate = Aggregator(config.worker.actor.loss_avg_mode, whole, quirks(config.algorithm.match))
        prepared = {}
        if prepare is not None:
            prepared = prepare(experience.loss_inputs(mini, current_log_probs()), config.worker.actor)

        def loss_of(log_probs_BT: Tensor, entropy_BT: Tensor, rows: list[int]) -> tuple[Tensor, dict[str, Tensor]]:
            chosen, T = [mini[i] for i in rows], log_probs_BT.shape[1]
            inputs = experience.loss_inputs(chosen, log_probs_BT)
            inputs.prepared = {name: values[rows, :T].to(log_probs_BT.device) for name, values in prepared.items()}
            mask = inputs.mask_BT
            loss, metrics = policy_loss(inputs, config.worker.actor, aggregate)
            metrics |= {"pg_loss": loss.detach(), "entropy": aggregate.token_mean(entropy_BT, mask)}
            if ref_BT is not None:
                ref = torch.where(mask.bool(), ref_BT[chosen, :T].to(mask.device), 0.0)
                kl = aggregate(kl_penalty(inputs.log_probs_BT, ref, config.algorithm.kl_penalty), mask)
                loss = loss + config.algorithm.kl_coef * kl
                metrics |= {"kl_loss": kl.detach()}
            return loss, metrics

        return loss_of

    return make_loss
