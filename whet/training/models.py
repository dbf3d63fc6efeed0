"""The models of a run: policy, engine, critic and reference, in this process or on ranks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from transformers import PreTrainedTokenizerBase

from whet.checkpoint.manifest import Checkpoint
from whet.config import Config
from whet.learn.protocol import Trained
from whet.model.fused import make_exact
from whet.model.load import count_parameters
from whet.rollout.spec import Opening, open_engine
from whet.tracking.console import Console
from whet.training import parts, policy
from whet.training.device import Placement, choose_placement, choose_threads, is_distributed

if TYPE_CHECKING:
    from whet.distributed import Rank
    from whet.learn.critic import LocalCritic
    from whet.learn.protocol import Critic, Learner, Reference
    from whet.rollout.engine import Engine
    from whet.training.checked import CheckedModel
    from whet.training.rank import RankWorker
    from whet.training.teachers import Paths, Teacher


@dataclass(frozen=True)
class RankPlan:
    """Everything a rank is built from; called in the rank's process, it returns the worker."""

    config: Config
    path: str
    tokenizer_path: str
    ends: frozenset[int]
    checkpoint: Checkpoint | None
    total_steps: int
    uses_reference: bool
    critic_path: str | None  # None: nothing needs values
    folder: Path  # the run's, for what engines print
    samples: bool = True  # open an engine on the ranks that learn
    teachers: Paths = field(default_factory=dict)  # folders by data source

    def __call__(self, rank: Rank) -> RankWorker:
        """Build the worker, in the process it lives in."""
        from whet.training.rank import RankWorker  # runs on one device have none

        return RankWorker(self, rank)


@dataclass(frozen=True, slots=True)
class Models:
    """Engine, learner, critic and reference, in this process or on the ranks of a group."""

    engine: Engine
    learner: Learner
    critic: Critic | None
    reference: Reference | None
    configure: Callable[[Config], None]  # continue under the config of another stage
    teacher: Teacher | None = None
    resize: Callable[[int], None] | None = None  # have so many replicas of the engine; None where it has none
    reward_model: Learner | None = None  # the implicit one that is trained with the policy (PRIME)


def prepare_device(run: CheckedModel, console: Console) -> None:
    """Choose how many threads compute, and say which keys of offloading have no effect."""
    choose_threads(run.placement, count_parameters(run.model.path))
    worker = run.config.worker
    offloads = (worker.actor.offload, worker.critic.offload, worker.ref.offload)
    activations = worker.actor.model.enable_activation_offload or worker.critic.model.enable_activation_offload
    states = any(each.offload_params or each.offload_optimizer for each in offloads)
    if activations or states or worker.ref.fsdp.enable_cpu_offload:
        from whet.training.offloading import offload_notes

        console.notes(offload_notes(run.config, run.placement.device))


def open_models(
    plan: RankPlan, placement: Placement, tokenizer: PreTrainedTokenizerBase, console: Console, stack: ExitStack
) -> Models:
    """Load what holds weights: on the ranks of several devices, or on the one that this process has."""
    if is_distributed(plan.config):
        from whet.training.pools import open_remote_models  # and with it Ray

        return open_remote_models(plan, plan.folder / "ranks", console, stack)
    config, path, checkpoint, steps = plan.config, plan.path, plan.checkpoint, plan.total_steps
    if placement.device.type == "cuda":
        _check_memory(config, path, placement)
    model = policy.load_policy(config, path, checkpoint, placement, console.note)
    if config.worker.rollout.exact:
        make_exact(model)
    engine = open_engine(Opening(config, model, tokenizer, plan.ends, plan.folder / "rollout.log"))
    stack.callback(engine.close)
    learner = parts.open_learner(config, model, steps)
    critic = _open_critic(plan) if plan.critic_path else None
    reference = policy.open_reference(config, path, placement, learner) if plan.uses_reference else None
    if reference is not None and reference.offload.wait and config.worker.ref.offload.offload_params is None:
        console.note(
            "reference: in host memory but for its own passes (worker.ref.offload.offload_params=false keeps it)"
        )
    teacher = None
    if config.algorithm.distill.active and not config.trainer.val_only:
        from whet.training.teachers import open_teacher

        teacher = open_teacher(config, plan.teachers, placement, learner, tokenizer)
    reward_model = None
    if config.algorithm.trains_reward_model and not config.trainer.val_only:
        from whet.training.implicit_reward import open_reward_model

        reward_model = open_reward_model(config, path, checkpoint, placement, steps)
    configure = partial(parts.configure_models, learner=learner, critic=critic)
    return Models(engine, learner, critic, reference, configure, teacher, reward_model=reward_model)


def _check_memory(config: Config, path: str, placement: Placement) -> None:
    """Raise a `UserError` if the models do not fit on the GPU, before any is loaded."""
    from whet.model.load import load_model_config
    from whet.training.memory import check_memory

    chosen = config.worker.actor.model
    model = load_model_config(path, chosen.trust_remote_code, chosen.override_config)
    check_memory(config, path, placement, policy.adapter_parameters(config, model))


def trained_models(models: Models) -> dict[str, Trained]:
    """Return what is trained and saved, by the name of its folder in a checkpoint."""
    others = {"critic": models.critic, "prm": models.reward_model}
    return {"actor": models.learner} | {name: each for name, each in others.items() if each is not None}


def _open_critic(plan: RankPlan) -> LocalCritic:
    from whet.training import critics

    placement = choose_placement(plan.config, "critic")
    weights = critics.critic_weights(plan.critic_path or "", plan.checkpoint)
    return critics.open_critic(plan.config, critics.load_critic(plan.config, weights, placement), plan.total_steps)
