"""Check a run's config against its engine and its model, before anything is opened or any weight is loaded."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from whet.algos import find_advantage, find_policy_loss, needs_of
from whet.checkpoint.manifest import Checkpoint
from whet.config import Config, check_critic
from whet.errors import UserError
from whet.rollout.spec import check_engine_model, check_engine_reachable
from whet.tracking.console import Console
from whet.training import parts, policy
from whet.training.device import Placement, check_distributed, choose_placement, is_distributed, keep_freed_memory
from whet.training.experience import needs_reference
from whet.training.model_folder import ModelFolder, find_model
from whet.training.models import RankPlan
from whet.training.stages import Stages

if TYPE_CHECKING:
    from whet.training.teachers import Paths


HIGHEST_LR = 0.1  # weights of a model are hardly ever larger


@dataclass(frozen=True)
class CheckedModel:
    """A config whose model can be trained as it says."""

    config: Config
    placement: Placement
    model: ModelFolder
    adapters: int | None  # parameters of the adapters; None without any

    @property
    def paths(self) -> list[str]:
        """Folders of the models that are trained."""
        return [self.model.path]


@dataclass(frozen=True)
class CheckedRun(CheckedModel):
    """A config whose engine and models can do what it says, in every stage."""

    stages: Stages
    critic_path: str | None  # None where nothing needs values
    teachers: Paths = field(default_factory=dict)  # folders by data source

    @property
    def paths(self) -> list[str]:
        """Folders of the models that are trained."""
        return [self.model.path] if self.critic_path is None else [self.model.path, self.critic_path]

    def plan(self, checkpoint: Checkpoint | None, total_steps: int, folder: Path) -> RankPlan:
        """Return what the models are built from."""
        return RankPlan(
            config=self.config,
            path=self.model.path,
            tokenizer_path=self.model.tokenizer_path,
            ends=self.model.ends,
            checkpoint=checkpoint,
            total_steps=total_steps,
            uses_reference=any(needs_reference(each.algorithm) for each in [self.config, *self.stages.configs]),
            critic_path=self.critic_path,
            folder=folder,
            teachers=self.teachers,
        )


def check_model(config: Config, console: Console) -> CheckedModel:
    """Find the model and raise a `UserError` where it cannot be trained as the config says."""
    placement = choose_placement(config)
    keep_freed_memory(placement)
    model = find_model(config, console.note)
    adapters = policy.check_model(config, model.config)
    parts.check_lengths(config, model.config, model.tokenizer)
    if not model.ends:
        console.warn(
            f"{model.path} names no token that ends a response (eos_token_id in generation_config.json, or eos_token "
            "of the tokenizer): every response will be cut off at data.max_response_length"
        )
    if (remark := rate_remark(config)) is not None and not config.trainer.val_only:
        console.warn(remark)
    return CheckedModel(config, placement, model, adapters)


def rate_remark(config: Config) -> str | None:
    """Return a sentence about a learning rate with which nothing can be learned; None for any other."""
    lr = config.worker.actor.optim.lr
    if lr == 0:
        return "worker.actor.optim.lr=0: no weight will change, so nothing is learned"
    if lr >= HIGHEST_LR:
        return (
            f"worker.actor.optim.lr={lr:g}: an update moves every weight by about that much, which destroys a model; "
            "1e-6 is common, 1e-5 for adapters, 1e-3 for the tiny built-in models"
        )
    return None


def needs_values(config: Config) -> bool:
    """Return True if the estimator needs a critic."""
    return "values" in needs_of(config.algorithm.adv_estimator)


def check_run(config: Config, console: Console) -> CheckedRun:
    """Do the same for a run that samples, whose engine, critic and stages are checked too."""
    if config.algorithm.extensions:
        from whet.training.extensions import load_extensions

        load_extensions(config)
    else:
        find_advantage(config.algorithm.adv_estimator)
        find_policy_loss(config.worker.actor.loss_type)
    check_engine_reachable(config)
    checked = check_model(config, console)
    model = checked.model
    check_engine_model(config, model.config)
    stages = Stages(config, console.note, console.warn)
    for each in [config, *stages.configs]:
        parts.check_lengths(each, model.config, model.tokenizer)
        check_critic(each, needs_values(each))
        check_baselines(each)
    critic_path = None
    if needs_values(config) and not config.trainer.val_only:
        from whet.training import critics

        critic_path = critics.critic_path(config, model.tokenizer, console)
    teachers: Paths = {}
    if config.algorithm.distill.active and not config.trainer.val_only:
        from whet.training.teachers import find_teachers

        teachers = find_teachers(config, model, console)
    if is_distributed(config):
        check_distributed(config)
    for each in [config, *stages.configs]:
        if each.algorithm.needs_dependency:
            from whet.training.perception import check_sees_images

            check_sees_images(each.algorithm, model.processor)
    return CheckedRun(config, checked.placement, model, checked.adapters, stages, critic_path, teachers)


def check_baselines(config: Config) -> None:
    """Refuse estimators that sample greedy responses in each step where samples are of several versions."""
    estimator = config.algorithm.adv_estimator
    if config.trainer.max_staleness and "baselines" in needs_of(estimator):
        raise UserError(
            f"trainer.max_staleness={config.trainer.max_staleness}: algorithm.adv_estimator={estimator} compares "
            "samples with a greedy response of the policy that wrote them, which has been updated since; choose grpo "
            "or rloo, or set max_staleness to 0"
        )
