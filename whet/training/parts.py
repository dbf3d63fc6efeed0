"""The pieces that `open_rooms` puts together, each built from the config alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from whet.assets import resolve_data
from whet.config import Config, resolve_path
from whet.data.dataset import PromptDataset
from whet.data.loader import PromptLoader
from whet.errors import UserError
from whet.learn.learner import Learner
from whet.learn.reference import Reference
from whet.model.load import load_model
from whet.rewards.dispatch import knows_match
from whet.rewards.function import is_scorer
from whet.rewards.scorer import RewardScorer
from whet.rollout.registry import engine_can
from whet.tracking.console import Console
from whet.training.budget import budget
from whet.training.device import Placement
from whet.training.offloading import shares_weights
from whet.training.stages import Stages
from whet.types import Prompt

if TYPE_CHECKING:
    from whet.learn.critic import Critic
    from whet.model.processor import Processor
    from whet.training.components import Rooms

CHECKED_ROWS = 2  # rows that the reward function is tried on before weights are loaded


def resolver(config: Config) -> Callable[[str], Path]:
    """Paths as the config means them: from the working directory, else beside the config file."""
    return lambda value: resolve_path(config, value)


def check_lengths(
    config: Config, model: PretrainedConfig, tokenizer: PreTrainedTokenizerBase, part: str = "actor"
) -> None:
    """The model's own limits against the config's."""
    text = model.get_text_config()
    longest = config.data.max_prompt_length + config.data.max_response_length
    limit = getattr(text, "max_position_embeddings", None)
    if limit is not None and longest > limit:
        raise UserError(
            f"data.max_prompt_length + data.max_response_length = {longest}, but the {part}'s positions end at {limit} "
            "(max_position_embeddings): lower one of the two"
        )
    rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    original = rope.get("original_max_position_embeddings") or limit
    if rope.get("rope_type") in ("dynamic", "longrope") and original is not None and longest > original:
        raise UserError(
            f"data.max_prompt_length + data.max_response_length = {longest}: the {part}'s {rope['rope_type']} rotary "
            f"embedding changes with the longest sequence of a batch beyond {original} tokens, so a sample would "
            "depend on its batch: lower one of the two"
        )
    if len(tokenizer) > text.vocab_size:
        key = "worker.actor.model.tokenizer_path" if part == "actor" else f"worker.{part}.model.model_path"
        raise UserError(
            f"{key}: the tokenizer has {len(tokenizer)} tokens, the model only "
            f"{text.vocab_size}: they do not belong together"
        )


def open_data(
    config: Config, tokenizer: PreTrainedTokenizerBase, console: Console, processor: Processor | None = None
) -> tuple[PromptLoader | None, PromptLoader | None, list[Prompt]]:
    """Training and validation loaders (None where not wanted), and a few rows to try the reward function on."""
    data, resolve = config.data, resolver(config)
    loader = val_loader = None
    rows: list[Prompt] = []
    for key in ("train_files", "val_files"):
        files = ",".join(resolve_data(part.strip(), console.note) for part in getattr(data, key).split(","))
        if not files or (key == "train_files" and config.trainer.val_only):
            continue
        limit = config.worker.rollout.limit_images
        dataset = PromptDataset(files, data, tokenizer, f"data.{key}", resolve, processor, limit)
        console.note(f"{key.removesuffix('_files')} data: {dataset.summary()}")
        if key == "train_files":
            size = draw_size(config, len(dataset))
            opened = loader = PromptLoader(dataset, size, data.shuffle, data.seed, warn=console.warn)
        else:
            size = data.val_batch_size
            opened = val_loader = PromptLoader(dataset, size, shuffle=False, seed=0, drop_last=False, warn=console.warn)
        rows = rows or opened.prompts(range(min(CHECKED_ROWS, len(dataset))))
    return loader, val_loader, rows


def open_scorer(config: Config, console: Console, output: Path | None = None) -> RewardScorer:
    """The reward function in its worker processes."""
    reward, spec = config.worker.reward, config.worker.reward.reward_function or ""
    if is_scorer(spec) and knows_match(spec, config.algorithm.match):
        options = {"match": config.algorithm.match, **reward.reward_function_kwargs}
        reward = replace(reward, reward_function_kwargs=options)
    return RewardScorer(spec, reward, resolver(config), console.warn, output)


def count_steps(config: Config, loader: PromptLoader | None, stages: Stages) -> int:
    """Training steps of the whole run, once every stage has enough rows to draw from."""
    if loader is None:
        return 0
    for each in stages.configs:
        loader.check_size(draw_size(each, len(loader)))
    if (planned := stages.total_steps()) is not None:
        return planned
    if config.trainer.max_steps is not None:
        return config.trainer.max_steps
    prompts = loader.steps_per_epoch * draw_size(config, len(loader))
    per_step = config.data.rollout_batch_size * config.trainer.rejection_sample_multiplier
    return max(1, prompts // per_step) * config.trainer.total_epochs


def draw_size(config: Config, rows: int) -> int:
    """How many prompts a step draws at a time."""
    data = config.data
    if rows < data.rollout_batch_size or data.mini_rollout_batch_size is None:
        return data.rollout_batch_size  # with too few rows, the loader says what is wrong with it
    if rows < data.mini_rollout_batch_size:
        raise UserError(
            f"data.mini_rollout_batch_size={data.mini_rollout_batch_size} is more than the {rows} rows of the training "
            f"data: set it to {rows} or less."
        )
    return data.mini_rollout_batch_size


def configure(rooms: Rooms, config: Config) -> None:
    """Go on under the config of another stage; nothing is loaded or lost by it."""
    rooms.config = config
    rooms.configure_models(config)
    if rooms.loader is not None:
        rooms.loader.resize(draw_size(config, len(rooms.loader)))
    rooms.control.enter(config)


def configure_models(config: Config, learner: Learner, critic: Critic | None, reference: Reference | None) -> None:
    """The same for what holds weights."""
    temperature, actor = config.worker.rollout.temperature, config.worker.actor
    tokens = budget(config, "actor", learner.model)
    learner.configure(actor, temperature, tokens)
    if critic is not None:
        critic.configure(config.worker.critic, budget(config, "critic", critic.model.backbone))
    if reference is not None:
        reference.configure(actor, temperature, tokens.tokens_experience)


def load_weights(path: str, config: Config, placement: Placement) -> PreTrainedModel:
    """The model in `path`, on its device."""
    model = config.worker.actor.model
    return load_model(path, placement.dtype, placement.device, model.trust_remote_code, model.override_config)


def open_learner(config: Config, model: PreTrainedModel, total_steps: int) -> Learner:
    """The policy with its optimizer."""
    actor = config.worker.actor
    tokens, shared = budget(config, "actor", model), shares_weights(config)
    return Learner(model, actor, config.worker.rollout.temperature, total_steps, tokens, shared)


def recompute_old_log_probs(config: Config) -> bool:
    """Whether old log-probs need a pass of their own.

    With one update per rollout and an engine of exact log-probs the sampler's numbers are the learner's own. With more
    updates the ratio is taken against them many times over, and another engine, or one on devices of its own where
    nothing is sharded, computes them differently: then they are made by the learner.
    """
    actor, correction = config.worker.actor, config.algorithm.rollout_correction
    if actor.recompute_old_log_probs is not None:
        return actor.recompute_old_log_probs
    if correction.active:  # which compares the learner's with the sampler's, or takes the latter for old ones
        return not correction.bypass_mode
    most_groups = config.data.rollout_batch_size * config.trainer.rejection_sample_multiplier
    one_update = actor.ppo_epochs == 1 and actor.global_batch_size >= most_groups
    own = engine_can(config).exact_log_probs and config.trainer.placement.rollout is None
    return not (one_update and own)
