"""Checks of `whet train`: what must hold between keys, before any file is opened or weight is loaded."""

from __future__ import annotations

from collections.abc import Iterator

from whet.config.checks.required import DATA_CHECKS, model_set
from whet.config.checks.run import Check, run_checks, where_set
from whet.config.checks.sampling import SAMPLING_CHECKS
from whet.config.checks.updates import batch_problems, budget_problems, must_divide, precision_problems
from whet.config.problems import raise_problems
from whet.config.schema import Config
from whet.config.values import show
from whet.errors import UserError

# Originals that train a prompt's only response on its raw score (see `singleton_keeps_score` in algos/quirks.py).
SINGLES_COUNT = ("verl", "or1")
MOST_SAMPLES = 10_000_000  # of a step; whatever is known of each is kept in this process's memory


def check_config(config: Config) -> None:
    """Raise a `UserError` that lists every contradiction between keys, missing key and feature not here yet."""
    raise_problems(run_checks(TRAIN_CHECKS, config))


def check_critic(config: Config, needed: bool) -> None:
    """Check keys of the critic, which matter only where the estimator needs values; an unused critic is refused."""
    if config.trainer.val_only:
        return
    if not needed and config.trainer.critic_warmup > 0:
        raise UserError(
            f"trainer.critic_warmup={config.trainer.critic_warmup}: algorithm.adv_estimator="
            f"{config.algorithm.adv_estimator} has no critic to warm up; set it to 0, or adv_estimator to gae"
        )
    if needed:
        raise_problems(
            [
                *batch_problems(config, "critic"),
                *budget_problems(config, "critic"),
                *precision_problems(config, "critic"),
            ]
        )


def _groups(config: Config) -> Iterator[str]:
    rollout, estimator = config.worker.rollout, config.algorithm.adv_estimator
    if rollout.n == 1 and config.algorithm.compares_groups and config.algorithm.match not in SINGLES_COUNT:
        yield (
            f"worker.rollout.n=1: adv_estimator={estimator} compares the samples of a prompt with each other; "
            "set worker.rollout.n to 2 or more (8 is common)"
        )
    keys, weights = config.algorithm.gdpo_reward_keys, config.algorithm.gdpo_reward_weights
    if weights and len(weights) != len(keys or ["overall"]):
        yield (
            f"algorithm.gdpo_reward_weights={show(weights)}: give one weight for each of "
            f"algorithm.gdpo_reward_keys={show(keys)}"
        )
    if rollout.n > 1 and rollout.temperature == 0:
        yield f"worker.rollout.temperature=0 makes all {rollout.n} samples of a prompt the same; set it above 0"
    if rollout.n > 1 and rollout.top_k == 1:
        yield f"worker.rollout.top_k=1 makes all {rollout.n} samples of a prompt the same; set -1 or 2 and more"


def _samples(config: Config) -> Iterator[str]:
    prompts = config.data.rollout_batch_size * config.trainer.rejection_sample_multiplier
    if prompts * config.worker.rollout.n > MOST_SAMPLES:
        yield (
            f"data.rollout_batch_size={config.data.rollout_batch_size} and worker.rollout.n={config.worker.rollout.n} "
            f"make {prompts * config.worker.rollout.n:,} samples a step, more than {MOST_SAMPLES:,}; lower one of them"
        )


def _draws(config: Config) -> Iterator[str]:
    size = config.data.mini_rollout_batch_size
    # A step that refills carries what is too much to the next one.
    if size is not None and not config.algorithm.refills:
        prompts = ("data.rollout_batch_size", config.data.rollout_batch_size)
        yield from must_divide("data.mini_rollout_batch_size", size, *prompts)


def _loss(config: Config) -> Iterator[str]:
    algorithm = config.algorithm
    if algorithm.disable_kl and algorithm.use_kl_loss:
        yield "algorithm.disable_kl=true leaves no KL, but algorithm.use_kl_loss=true adds it to the loss; keep one"


def _stages(config: Config) -> Iterator[str]:
    if not config.trainer.stages:
        return
    from whet.config.stages import read_stages

    known = run_checks(_ONE_STAGE, config)
    for i, stage in enumerate(read_stages(config)):
        yield from (
            f"trainer.stages[{i}]: {each}" for each in run_checks(_ONE_STAGE, stage.config) if each not in known
        )


def _while_training(check: Check) -> Check:
    """Return the check for a config that trains; one that only validates has no such problem."""
    return lambda config: () if config.trainer.val_only else check(config)


REWARD = where_set(
    "reward.REWARD_CHECKS",
    *(f"worker.reward.{name}" for name in ("combine", "url", "model.", "judge.", "manager", "reward_type")),
)
FEATURES = (
    where_set("distill.DISTILL_CHECKS", "algorithm.distill."),
    where_set(
        "recipes.RECIPE_CHECKS",
        *("algorithm.adv_estimator", "worker.actor.loss_type", "algorithm.demonstration_key"),
        *("algorithm.online_filtering", "algorithm.filter_groups.", "algorithm.replay_buffer.", "data.curriculum."),
        *("trainer.rejection_sample", "trainer.rejection_sample_multiplier", "worker.reward.overlong_buffer."),
        *("algorithm.kl_type", "worker.actor.adaptive_entropy.", "algorithm.observation_coef"),
        *("algorithm.use_vppo_on_perception", "algorithm.use_vppo_on_entropy", "algorithm.use_advantage_shaping"),
    ),
    where_set(
        "asynchronous.ASYNC_CHECKS",
        *(f"trainer.{name}" for name in ("max_staleness", "steps_ahead", "on_stale", "replay")),
    ),
    where_set(
        "correction.CORRECTION_CHECKS",
        *("algorithm.rollout_correction.", "worker.rollout.quantization", "worker.rollout.kv_cache_dtype"),
    ),
)
_TRAINING: tuple[Check, ...] = (
    _groups,
    lambda config: batch_problems(config, "actor"),
    _draws,
    _loss,
    lambda config: precision_problems(config, "actor"),
    _samples,
    *FEATURES,
)
_ONE_STAGE: tuple[Check, ...] = (
    model_set,
    *DATA_CHECKS,
    *SAMPLING_CHECKS,
    REWARD,
    *map(_while_training, _TRAINING),
)
TRAIN_CHECKS: tuple[Check, ...] = (*_ONE_STAGE, _stages)
