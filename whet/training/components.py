"""From a checked config to everything a run needs, in the order that finds mistakes before work starts.

First what costs nothing (tokenizer, the model's own config, data, reward function, run folder, loggers), then weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transformers import PreTrainedTokenizerBase

from whet.checkpoint.manifest import Checkpoint
from whet.checkpoint.store import CheckpointStore
from whet.config import Config, run_folder
from whet.config.anchored import anchored
from whet.data.loader import PromptLoader
from whet.learn.learner import Learner
from whet.learn.reference import Reference
from whet.model.fused import make_exact
from whet.model.load import count_parameters
from whet.model.names import folder_weights
from whet.rewards.overlong import penalise_overlong
from whet.rewards.scorer import RewardScorer
from whet.rollout.engine import Engine, SamplingParams
from whet.rollout.registry import open_engine
from whet.rollout.spec import Opening
from whet.tracking import Tracker
from whet.tracking.console import Console
from whet.tracking.run_folder import RunFolder
from whet.training import critics, parts, policy
from whet.training.checked import check_run
from whet.training.control import Control
from whet.training.device import (
    Placement,
    choose_placement,
    choose_threads,
    is_distributed,
)
from whet.training.interrupt import Interrupt
from whet.training.offloading import offload_notes
from whet.training.plan import Models, RankPlan
from whet.training.resume import check_disk, starting_point, take_position
from whet.training.stages import Stages
from whet.types import Prompt, Sample

if TYPE_CHECKING:
    from whet.distributed import Group
    from whet.learn.critic import Critic
    from whet.model.processor import Processor


@dataclass(slots=True)
class Rooms:
    """What the loop walks through."""

    config: Config
    console: Console
    interrupt: Interrupt
    folder: RunFolder
    checkpoints: CheckpointStore
    checkpoint: Checkpoint | None  # where this run continues from
    tracker: Tracker
    tokenizer: PreTrainedTokenizerBase
    loader: PromptLoader | None  # None with trainer.val_only
    val_loader: PromptLoader | None
    scorer: RewardScorer | None  # None where the caller gives scores
    engine: Engine
    learner: Learner
    critic: Critic | None  # only for estimators that need values
    reference: Reference | None
    control: Control
    stages: Stages
    total_steps: int
    group: Group | None = None  # the ranks behind engine, learner and reference, where there are several
    processor: Processor | None = None  # what the model makes of images; None for a model of text alone

    @property
    def mini_batch(self) -> int:
        """Samples per optimizer step."""
        return self.config.worker.actor.global_batch_size * self.config.worker.rollout.n

    @property
    def recompute_old_log_probs(self) -> bool:
        """Whether old log-probs need a pass of their own."""
        return parts.recompute_old_log_probs(self.config)

    def end_at(self, step: int) -> None:
        """Make this the last step of the run."""
        self.total_steps = self.console.total_steps = step

    def configure_models(self, config: Config) -> None:
        """Let what holds weights go on under another config."""
        if self.group is not None:
            self.group.call("configure", config)
        else:
            parts.configure_models(config, self.learner, self.critic, self.reference)

    def enter_stage(self) -> None:
        """Go on under the config of the current stage."""
        parts.configure(self, self.stages.config)
        self.stages.announce()

    def publish(self, version: int) -> None:
        """Give the engine the policy's weights as they are now."""
        with self.learner.offload.here():
            self.engine.load_weights(lambda: folder_weights(self.learner.model), version)

    def generate(
        self, prompts: Sequence[Prompt], params: SamplingParams, ids: Sequence[int], advance: Callable[[int], None]
    ) -> list[Sample]:
        """n samples for each prompt, with the text that rewards and people read."""
        samples = self.engine.generate(prompts, params, ids, advance)
        self.engine.release()
        skip = self.config.worker.reward.skip_special_tokens
        texts = self.tokenizer.batch_decode([s.ids for s in samples], skip_special_tokens=skip)
        for i, (sample, text) in enumerate(zip(samples, texts)):
            sample.text, sample.group = text, ids[i // params.n]
        return samples

    def score(self, samples: list[Sample], advance: Callable[[int], None] | None = None) -> dict[str, float]:
        """Score samples to train on; returns how many rewards failed."""
        assert self.scorer is not None, "asked for only where there is one"
        counts = self.scorer.score(samples, advance)
        penalise_overlong(samples, self.config.worker.reward.overlong_buffer, self.config.data.max_response_length)
        return counts

    def require_scores(self, samples: Sequence[Sample], when: str) -> None:
        """Raise `RewardsFailedError` if no sample could be scored."""
        assert self.scorer is not None, "asked for only where there is one"
        self.scorer.require_scores(samples, when)

    @property
    def trained(self) -> dict[str, Learner | Critic]:
        """What is trained and saved, by the name of its folder in a checkpoint."""
        return {"actor": self.learner} | ({"critic": self.critic} if self.critic is not None else {})

    def position(self, step: int) -> dict[str, float]:
        """How far the run is, as metrics."""
        return {"train/step": step, "train/epoch": self.loader.epoch if self.loader else 0} | self.stages.metrics()


def open_rooms(config: Config, console: Console, stack: ExitStack) -> Rooms:
    """Build everything a training run needs; what must be closed afterwards goes onto the stack."""
    run = check_run(config, console)
    model, stages = run.model, run.stages
    loader, val_loader, rows = parts.open_data(config, model.tokenizer, console, model.processor)
    total_steps = console.total_steps = parts.count_steps(config, loader, stages)

    folder = stack.enter_context(RunFolder(run_folder(config)))
    scorer = stack.enter_context(parts.open_scorer(config, console, folder.path / "reward.log"))
    scorer.check(rows)
    checkpoints = CheckpointStore(folder.path, config.trainer.save_limit, config.trainer.keep_best, console.warn)
    checkpoint = starting_point(config, checkpoints, console, model.config)
    take_position(checkpoint, loader)
    check_disk(config, folder, run.paths, total_steps, console, run.adapters)
    console.log_to(folder.log)
    tracker = open_tracker(config, folder, console)
    stack.callback(tracker.close)
    if not (config.trainer.val_only and folder.config.exists()):  # it tells how the run was trained
        folder.write_config(anchored(config).to_yaml())

    choose_threads(run.placement, count_parameters(model.path))
    for note in offload_notes(config, run.placement.device):
        console.note(note)
    plan = run.plan(checkpoint, total_steps, folder.path)
    models = open_models(plan, run.placement, model.tokenizer, folder, console, stack)
    return Rooms(
        config=config,
        console=console,
        interrupt=stack.enter_context(Interrupt(console.note)),
        folder=folder,
        checkpoints=checkpoints,
        checkpoint=checkpoint,
        tracker=tracker,
        tokenizer=model.tokenizer,
        loader=loader,
        val_loader=val_loader,
        scorer=scorer,
        engine=models.engine,
        learner=models.learner,
        critic=models.critic,
        reference=models.reference,
        control=Control(config),
        stages=stages,
        total_steps=total_steps,
        group=models.group,
        processor=model.processor,
    )


def open_models(
    plan: RankPlan,
    placement: Placement,
    tokenizer: PreTrainedTokenizerBase,
    folder: RunFolder,
    console: Console,
    stack: ExitStack,
) -> Models:
    """Load what holds weights: on the ranks of several devices, or on the one that this process has."""
    if is_distributed(plan.config):
        from whet.training.pools import open_remote_models  # and with it Ray

        return open_remote_models(plan, folder.path / "ranks", console.note, stack)
    config, path, checkpoint, steps = plan.config, plan.path, plan.checkpoint, plan.total_steps
    model = policy.load_policy(config, path, checkpoint, placement, console.note)
    if config.worker.rollout.exact:
        make_exact(model)
    engine = open_engine(Opening(config, model, tokenizer, plan.ends, folder.path / "rollout.log"))
    stack.callback(engine.close)
    learner = parts.open_learner(config, model, steps)
    return Models(
        engine,
        learner,
        _open_critic(plan) if plan.critic_path else None,
        policy.open_reference(config, path, placement, learner) if plan.uses_reference else None,
    )


def _open_critic(plan: RankPlan) -> Critic:
    placement = choose_placement(plan.config, "critic")
    weights = critics.critic_weights(plan.critic_path or "", plan.checkpoint)
    return critics.open_critic(plan.config, critics.load_critic(plan.config, weights, placement), plan.total_steps)


def open_tracker(config: Config, folder: RunFolder, console: Console) -> Tracker:
    """Every logger of `trainer.logger`, and metrics.jsonl."""
    trainer = config.trainer
    return Tracker(
        list(dict.fromkeys([*trainer.logger, "file"])),  # metrics.jsonl is part of every run folder
        folder,
        console,
        trainer.project_name,
        trainer.experiment_name,
        config.stored(),
        trainer.log_samples,
        trainer.log_token_log_probs,
        parts.resolver(config),
    )
