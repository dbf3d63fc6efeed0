"""The critic's part of a step: its loss, its update, and how well its values foretell the returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from whet.algos.aggregate import Aggregator, count
from whet.algos.quirks import quirks
from whet.algos.value_loss import value_loss
from whet.config.schema import Config
from whet.training.experience import Experience
from whet.training.measure import StepClock

if TYPE_CHECKING:
    from whet.learn.critic import Critic, MicroValueLoss


def update_critic(
    critic: Critic, config: Config, experience: Experience, step: int, clock: StepClock
) -> dict[str, float]:
    """Move the critic's values towards the returns; nothing in a stage whose estimator needs no values."""
    if experience.values_BT is None:
        return {}
    mini_batch = config.worker.critic.global_batch_size * config.worker.rollout.n
    loss = ValueObjective(experience, experience.values_BT, config)
    with clock.stage("update_critic", len(experience.samples) * config.worker.critic.ppo_epochs) as advance:
        metrics = critic.update(experience.samples, loss, step, mini_batch, advance)
    return metrics | value_metrics(experience.values_BT, experience.returns_BT, experience.mask_BT)


@dataclass(frozen=True)
class ValueObjective:
    """For each mini-batch (rows of the experience), the value loss of its micro-batches; can be sent elsewhere."""

    experience: Experience
    old_values_BT: Tensor
    config: Config

    def __call__(self, mini: list[int]) -> MicroValueLoss | None:
        """The loss of these rows, or None where nothing of them is left to train on."""
        experience, critic = self.experience, self.config.worker.critic
        whole = count(experience.mask_BT[mini], horizon=self.config.data.max_response_length)
        if not whole.tokens:
            return None
        aggregate = Aggregator(critic.loss_avg_mode, whole, quirks(self.config.algorithm.match))

        def loss_of(values_BT: Tensor, rows: list[int]) -> tuple[Tensor, dict[str, Tensor]]:
            chosen, T = [mini[i] for i in rows], values_BT.shape[1]
            old, returns, mask = (
                known[chosen, :T].to(values_BT.device)
                for known in (self.old_values_BT, experience.returns_BT, experience.mask_BT)
            )
            loss, metrics = value_loss(values_BT, old, returns, mask, critic.cliprange_value, aggregate)
            return loss, metrics | {"vf_loss": loss.detach()}

        return loss_of


def value_metrics(values_BT: Tensor, returns_BT: Tensor, mask_BT: Tensor) -> dict[str, float]:
    """The values before the update, and the share of the returns' variance that they explain, over written tokens."""
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
