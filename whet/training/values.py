"""The critic's part of a step: its objective, its update, and metrics of its values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from whet.algos.aggregate import Aggregator, count
from whet.algos.quirks import quirks
from whet.algos.value_loss import value_loss
from whet.config.schema import Config
from whet.learn.protocol import Critic, MiniBatchLoss, Objective
from whet.training.experience import Experience
from whet.training.measure import StepClock


def update_critic(
    critic: Critic, config: Config, experience: Experience, step: int, clock: StepClock
) -> dict[str, float]:
    """Train the critic on the returns and return metrics; do nothing if the estimator needs no values."""
    if experience.values_BT is None:
        return {}
    mini_batch = config.worker.critic.global_batch_size * config.worker.rollout.n
    loss = ValueObjective(experience, experience.values_BT, config)
    with clock.stage("update_critic", len(experience.samples) * config.worker.critic.ppo_epochs) as advance:
        metrics = critic.update(experience.samples, loss, step, mini_batch, advance)
    return metrics | value_metrics(experience.values_BT, experience.returns_BT, experience.mask_BT)


@dataclass(frozen=True)
class ValueObjective(Objective[Tensor]):
    """The value loss of one step's update on an experience; rows are the experience's."""

    experience: Experience
    old_values_BT: Tensor
    config: Config

    def begin(self, rows: list[int], current: Callable[[], Tensor]) -> ValueLoss | None:
        """Return the loss of the mini-batch of these rows, or None if no token of them is left to train on."""
        whole = count(self.experience.mask_BT[rows], horizon=self.config.data.max_response_length)
        if not whole.tokens:
            return None
        aggregate = Aggregator(self.config.worker.critic.loss_avg_mode, whole, quirks(self.config.algorithm.match))
        return ValueLoss(self, rows, aggregate)


@dataclass(frozen=True)
class ValueLoss(MiniBatchLoss[Tensor]):
    """The value loss of one mini-batch."""

    objective: ValueObjective
    mini_batch: list[int]  # rows of the experience
    aggregate: Aggregator

    def loss(self, outputs: Tensor, rows: list[int]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return loss and metrics of the micro-batch of these rows of the mini-batch; `outputs` are values (B, T)."""
        experience, clip = self.objective.experience, self.objective.config.worker.critic.cliprange_value
        chosen, T = [self.mini_batch[i] for i in rows], outputs.shape[1]
        old_BT, returns_BT, mask_BT = (
            known[chosen, :T].to(outputs.device)
            for known in (self.objective.old_values_BT, experience.returns_BT, experience.mask_BT)
        )
        loss, metrics = value_loss(outputs, old_BT, returns_BT, mask_BT, clip, self.aggregate)
        return loss, metrics | {"vf_loss": loss.detach()}


def value_metrics(values_BT: Tensor, returns_BT: Tensor, mask_BT: Tensor) -> dict[str, float]:
    """Return statistics of the values before the update and the explained variance of the returns, under the mask."""
    inside = mask_BT.bool()
    values, returns = values_BT[inside].double(), returns_BT[inside].double()
    if len(values) == 0:
        return {}
    unexplained = torch.var(returns - values, correction=0) / (torch.var(returns, correction=0) + 1e-5)
    return {
        "critic/values/mean": float(values.mean()),
        "critic/values/max": float(values.max()),
        "critic/values/min": float(values.min()),
        "critic/vf_explained_var": 1 - float(unexplained),
    }
