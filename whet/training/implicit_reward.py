"""The implicit reward model of PRIME: from the policy's first weights, trained on outcomes, asked about tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from whet.algos.implicit_reward import outcome_loss, process_rewards
from whet.checkpoint.manifest import Checkpoint
from whet.config import Config, local_name
from whet.learn.learner import LocalLearner
from whet.learn.packing import pad
from whet.learn.protocol import Learner, MiniBatchLoss, Objective
from whet.learn.scoring import Scored
from whet.model.load import load_model
from whet.training.device import Placement
from whet.training.experience import on_device
from whet.training.measure import StepClock, correctness
from whet.training.parts import budget
from whet.types import Sample

FOLDER = "prm"  # of a checkpoint


def open_reward_model(
    config: Config, path: str, checkpoint: Checkpoint | None, placement: Placement, total_steps: int
) -> LocalLearner:
    """Load the reward model, from the checkpoint if it holds one, with an optimizer of its own."""
    saved = checkpoint.path / FOLDER / "huggingface" if checkpoint else None
    named = config.algorithm.prime.model_path
    first = local_name(config, named) if named else path
    weights = str(saved) if saved is not None and saved.is_dir() else first
    model = load_model(weights, placement.dtype, placement.device, config.worker.actor.model.trust_remote_code)
    actor = config.worker.actor
    own = replace(actor, optim=replace(actor.optim, lr=config.algorithm.prime.lr), ppo_epochs=1)
    return LocalLearner(model, own, config.worker.rollout.temperature, total_steps, budget(config, "actor", model))


def update_reward_model(
    model: Learner, config: Config, samples: Sequence[Sample], ref_log_probs_BT: Tensor, step: int, clock: StepClock
) -> tuple[Tensor, dict[str, float]]:
    """Train the reward model on the samples' outcomes; return its process rewards (B, T) after that, and metrics."""
    score, mask_BT = correctness(samples), pad([sample.mask for sample in samples])
    outcomes_B = torch.tensor([min(max(score(sample), 0.0), 1.0) for sample in samples])
    objective = OutcomeObjective(mask_BT, ref_log_probs_BT, outcomes_B, config.algorithm.prime.beta)
    mini_batch = config.worker.actor.global_batch_size * config.worker.rollout.n
    with clock.stage("update_prm", len(samples)) as advance:
        found = model.update(samples, objective, step, mini_batch, advance)
        rewards_BT = process_rewards(model.log_probs(samples), ref_log_probs_BT, mask_BT, config.algorithm.prime.beta)
    metrics = {f"prm/{name.partition('/')[2]}": value for name, value in found.items() if name.startswith("actor/")}
    return rewards_BT, metrics | {"prm/reward": float(rewards_BT.sum() / mask_BT.sum().clamp(min=1))}


@dataclass(frozen=True)
class OutcomeObjective(Objective[Scored]):
    """Cross-entropy of outcomes and summed process rewards; rows are those of the step's samples."""

    mask_BT: Tensor
    ref_log_probs_BT: Tensor
    outcomes_B: Tensor
    beta: float

    def begin(self, rows: list[int], current: Callable[[], Tensor]) -> OutcomeLoss | None:
        """Return the loss of a mini-batch; None if it has no token."""
        responses = int(self.mask_BT[rows].any(dim=1).sum())
        return OutcomeLoss(self, rows, responses) if responses else None


@dataclass(frozen=True)
class OutcomeLoss(MiniBatchLoss[Scored]):
    """The loss of one mini-batch."""

    objective: OutcomeObjective
    mini_batch: list[int]
    responses: int  # with at least one token

    def loss(self, outputs: Scored, rows: list[int]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return loss and metrics of the micro-batch of these rows of the mini-batch."""
        whole, log_probs_BT = self.objective, outputs.log_probs_BT
        T, device = log_probs_BT.shape[1], log_probs_BT.device
        chosen = [self.mini_batch[i] for i in rows]
        mask_BT, ref_BT = (on_device(each[chosen, :T], device) for each in (whole.mask_BT, whole.ref_log_probs_BT))
        rewards_BT = process_rewards(log_probs_BT, ref_BT, mask_BT, whole.beta)
        written = mask_BT.any(dim=1)
        outcomes_B = on_device(whole.outcomes_B[chosen], device)
        loss, metrics = outcome_loss(rewards_BT[written], outcomes_B[written], self.responses)
        return loss, metrics | {"loss": loss.detach()}
