"""Checks between the keys of filters, penalties, controllers and stages; each yields sentences."""

from __future__ import annotations

from collections.abc import Iterator

from whet.config.checks.run import Check
from whet.config.schema import Config


def draws_allowed(config: Config) -> int | None:
    """Return the most draws of a step that refills; None for no limit."""
    limits = [config.trainer.max_try_make_batch]
    if config.algorithm.filter_groups.enable and config.algorithm.filter_groups.max_num_gen_batches:
        limits = [config.algorithm.filter_groups.max_num_gen_batches]
    return limits[0] if limits[0] > 0 else None


def _filters(config: Config) -> Iterator[str]:
    algorithm, trainer = config.algorithm, config.trainer
    if algorithm.online_filtering and algorithm.filter_low >= algorithm.filter_high:
        yield (
            f"algorithm.filter_low={algorithm.filter_low} is not below algorithm.filter_high={algorithm.filter_high}: "
            "no group can lie between the two"
        )
    if trainer.rejection_sample and algorithm.refills:
        yield (
            "trainer.rejection_sample=true drops groups without refilling, but algorithm.filter_groups.enable or "
            "algorithm.online_filtering refills; keep one"
        )
    if trainer.rejection_sample_multiplier > 1 and not trainer.rejection_sample:
        yield (
            f"trainer.rejection_sample_multiplier={trainer.rejection_sample_multiplier} belongs to "
            "trainer.rejection_sample; set that to true"
        )
    if config.worker.rollout.n == 1 and (algorithm.filter_groups.enable or trainer.rejection_sample):
        key = "algorithm.filter_groups.enable" if algorithm.filter_groups.enable else "trainer.rejection_sample"
        yield f"{key}=true looks at how the samples of a prompt differ; set worker.rollout.n to 2 or more"


def _tries(config: Config) -> Iterator[str]:
    allowed = draws_allowed(config)
    prompts = config.data.mini_rollout_batch_size or config.data.rollout_batch_size
    if config.algorithm.refills and allowed is not None and allowed * prompts < config.data.rollout_batch_size:
        of_groups = config.algorithm.filter_groups
        by_groups = of_groups.enable and of_groups.max_num_gen_batches
        key = "algorithm.filter_groups.max_num_gen_batches" if by_groups else "trainer.max_try_make_batch"
        yield (
            f"{key}={allowed} draws of {prompts} prompts can never fill "
            f"data.rollout_batch_size={config.data.rollout_batch_size}; allow more of them or set a larger "
            "data.mini_rollout_batch_size"
        )


def _overlong(config: Config) -> Iterator[str]:
    buffer, longest = config.worker.reward.overlong_buffer, config.data.max_response_length
    if buffer.enable and not 0 < buffer.len <= longest:
        yield (
            f"worker.reward.overlong_buffer.len={buffer.len}: the penalty grows over the last so many tokens of a "
            f"response; set it between 1 and data.max_response_length={longest}"
        )


def _controllers(config: Config) -> Iterator[str]:
    algorithm, entropy = config.algorithm, config.worker.actor.adaptive_entropy
    if algorithm.kl_type == "adaptive" and (algorithm.disable_kl or algorithm.kl_coef == 0):
        why = "algorithm.disable_kl=true leaves no KL" if algorithm.disable_kl else "a kl_coef of 0 stays 0"
        yield f"algorithm.kl_type=adaptive moves algorithm.kl_coef, but {why}"
    if entropy.enabled and entropy.min_ent_coef > entropy.max_ent_coef:
        yield (
            f"worker.actor.adaptive_entropy.min_ent_coef={entropy.min_ent_coef} is more than "
            f"max_ent_coef={entropy.max_ent_coef}"
        )
    if entropy.enabled and entropy.target_entropy == 0:
        yield "worker.actor.adaptive_entropy.target_entropy=0 is below every entropy; set what to aim at, such as 0.2"


def _perception(config: Config) -> Iterator[str]:
    algorithm = config.algorithm
    selections = [name for name in ("use_vppo_on_perception", "use_vppo_on_entropy") if getattr(algorithm, name)]
    if selections and config.worker.actor.loss_type == "geo_mean":
        yield (
            f"algorithm.{selections[0]}=true chooses tokens, but worker.actor.loss_type=geo_mean has one loss for a "
            "whole response; choose another loss"
        )
    if algorithm.match == "vppo" and algorithm.use_advantage_shaping and not algorithm.use_vppo_on_perception:
        yield (
            "algorithm.use_advantage_shaping=true does nothing in VPPO-RL without algorithm.use_vppo_on_perception; "
            "set both, or leave algorithm.match at whet, where each works alone"
        )


def _pairs_of_names(config: Config) -> Iterator[str]:
    """Losses whose numbers mean something only with the estimator of the same name, and the other way round."""
    estimator, loss = config.algorithm.adv_estimator, config.worker.actor.loss_type
    for name in ("flowrl", "spin", "sppo"):
        if (estimator == name) != (loss == name):
            yield (
                f"algorithm.adv_estimator={estimator} and worker.actor.loss_type={loss}: {name} is an estimator and a "
                f"loss that go together; set both to {name}"
            )


def _demonstrations(config: Config) -> Iterator[str]:
    key, estimator = config.algorithm.demonstration_key, config.algorithm.adv_estimator
    if (key is not None) != (estimator == "spin"):
        yield (
            f"algorithm.demonstration_key={key} and algorithm.adv_estimator={estimator}: spin learns from "
            "demonstrations, and no other estimator does; set both or neither"
        )
    if key is not None and config.worker.rollout.plays_episodes:
        yield (
            f"algorithm.demonstration_key={key}: a demonstration is one response, and tools, environments and "
            "harnesses make episodes of several turns; leave one of them out"
        )


def _reward_model(config: Config) -> Iterator[str]:
    if not config.algorithm.trains_reward_model:
        return
    devices = config.trainer.nnodes * config.trainer.n_gpus_per_node
    if devices > 1:
        yield (
            f"algorithm.adv_estimator={config.algorithm.adv_estimator} trains a reward model, which is not sharded "
            f"yet, and the run has {devices} devices; set trainer.nnodes and trainer.n_gpus_per_node to 1"
        )
    if config.worker.actor.model.lora.rank:
        yield (
            f"algorithm.adv_estimator={config.algorithm.adv_estimator} trains a whole reward model beside the policy; "
            "set worker.actor.model.lora.rank to 0"
        )


def _history(config: Config) -> Iterator[str]:
    curriculum, buffer, rollout = config.data.curriculum, config.algorithm.replay_buffer, config.worker.rollout
    named = [
        ("data.curriculum", curriculum.active),
        ("algorithm.replay_buffer.size", buffer.size > 0),
        (f"algorithm.adv_estimator={config.algorithm.adv_estimator}", config.algorithm.adv_estimator in ("spo", "rae")),
    ]
    if config.trainer.max_staleness > 0 or config.trainer.replay is not None:
        for name in (name for name, used in named if used):
            yield (
                f"{name} depends on the scores of all earlier steps, and asynchronous training samples ahead of them; "
                "set trainer.max_staleness to 0 (and leave trainer.replay out)"
            )
    if buffer.size and not buffer.groups < config.data.rollout_batch_size:
        yield (
            f"algorithm.replay_buffer.groups={buffer.groups} takes the place of as many prompts of a step; set it "
            f"below data.rollout_batch_size={config.data.rollout_batch_size}"
        )
    if buffer.size and buffer.groups > buffer.size:
        yield (
            f"algorithm.replay_buffer.groups={buffer.groups} is more than the {buffer.size} groups that are kept "
            "(algorithm.replay_buffer.size); raise that"
        )
    if curriculum.active and rollout.n == 1 and config.algorithm.adv_estimator != "spo":
        yield (
            "data.curriculum measures pass rates by the samples of a prompt; set worker.rollout.n to 2 or more, or "
            "algorithm.adv_estimator=spo"
        )


def _observations(config: Config) -> Iterator[str]:
    rollout = config.worker.rollout
    if config.algorithm.observation_coef and not rollout.plays_episodes:
        yield (
            f"algorithm.observation_coef={config.algorithm.observation_coef}: only episodes have observations to "
            "learn; set worker.rollout.tools, env or agent"
        )


RECIPE_CHECKS: tuple[Check, ...] = (
    _filters,
    _tries,
    _overlong,
    _controllers,
    _perception,
    _pairs_of_names,
    _demonstrations,
    _history,
    _reward_model,
    _observations,
)
