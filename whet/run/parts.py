"""The pieces that `open_rooms` puts together, each built from the config alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from whet.algos import needs_of
from whet.assets import resolve_data, resolve_model
from whet.config import Config, check_critic, resolve_path
from whet.config.model import ModelConfig
from whet.data.dataset import PromptDataset
from whet.data.loader import PromptLoader
from whet.errors import UserError
from whet.learn.critic import Critic
from whet.learn.layout import check_sizes
from whet.learn.learner import Learner
from whet.learn.memory import head_bytes, model_bytes, plan, token_bytes
from whet.learn.reference import Reference
from whet.learn.updates import Budget
from whet.learn.value_head import ValueModel
from whet.model.fused import decoder_of
from whet.model.load import count_parameters, load_backbone, load_model, load_model_config
from whet.model.processor import Processor
from whet.model.vision import freeze_tower
from whet.reward.scorer import RewardScorer
from whet.rollout.engine import KEPT_CACHE
from whet.run.console import Console
from whet.run.device import Placement, choose_placement
from whet.run.experience import needs_reference
from whet.run.manifest import Checkpoint
from whet.run.offloading import shares_weights
from whet.run.stages import Stages
from whet.types import Prompt

if TYPE_CHECKING:
    from whet.run.rooms import Rooms

CHECKED_ROWS = 2  # rows that the reward function is tried on before weights are loaded


def resolver(config: Config) -> Callable[[str], Path]:
    """Paths as the config means them: from the working directory, else beside the config file."""
    return lambda value: resolve_path(config, value)


def local_name(config: Config, name: str) -> str:
    """A folder's path where one stands, a hub id or built-in name unchanged."""
    path = resolve_path(config, name)
    return str(path) if path.exists() else name


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
    reward = config.worker.reward
    return RewardScorer(reward.reward_function or "", reward, resolver(config), console.warn, output)


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


def critic_model(config: Config) -> ModelConfig:
    """`worker.critic.model`; without a path of its own it is the actor's model, opened as the actor's is."""
    own, actor = config.worker.critic.model, config.worker.actor.model
    if own.model_path is not None:
        return own
    return replace(
        own,
        model_path=actor.model_path,
        trust_remote_code=own.trust_remote_code or actor.trust_remote_code,
        override_config=actor.override_config | own.override_config,
    )


def check_critic_of(config: Config) -> bool:
    """Whether the estimator needs a critic, whose config is then in order."""
    needed = "values" in needs_of(config.algorithm.adv_estimator)
    check_critic(config, needed)
    return needed


def critic_path(config: Config, tokenizer: PreTrainedTokenizerBase, console: Console) -> str | None:
    """Where the critic's first weights are, its own config checked; None where nothing needs values."""
    if not check_critic_of(config) or config.trainer.val_only:
        return None
    chosen = critic_model(config)
    path = resolve_model(local_name(config, chosen.model_path or ""), console.note)
    model = load_model_config(path, chosen.trust_remote_code, chosen.override_config, "worker.critic.model")
    check_lengths(config, model, tokenizer, "critic")
    check_sizes(model, 1, config.worker.critic.ulysses_size, "critic")
    return path


def critic_weights(path: str, checkpoint: Checkpoint | None) -> str:
    """The folder that the critic's weights are read from: the checkpoint's, or the first one in `path`."""
    saved = checkpoint.path / "critic" / "huggingface" if checkpoint else None
    return str(saved) if saved is not None and saved.is_dir() else path


def load_critic(config: Config, weights: str, placement: Placement) -> ValueModel:
    """A value model on its device; its values are 0 where the folder has no value head."""
    chosen = critic_model(config)
    backbone = load_backbone(
        weights, placement.dtype, placement.device, chosen.trust_remote_code, chosen.override_config
    )
    if config.worker.critic.model.freeze_vision_tower:
        freeze_tower(backbone)
    model = ValueModel(backbone)
    model.load_head(Path(weights))
    return model


def open_critic(config: Config, model: ValueModel, total_steps: int) -> Critic:
    """The value model with its optimizer."""
    return Critic(model, config.worker.critic, total_steps, budget(config, "critic", model.backbone))


def budget(config: Config, part: str = "actor", model: PreTrainedModel | None = None) -> Budget:
    """Tokens of a micro-batch: `micro_batch_tokens`, or what a model's GPU has room for; None counts samples.

    Without a GPU it is so many of the longest samples.
    """
    worker = getattr(config.worker, part)
    longest = config.data.max_prompt_length + config.data.max_response_length
    tokens, by_samples = worker.micro_batch_tokens, worker.micro_batch_size_per_device_for_update * longest
    planned = None
    if model is not None and model.device.type == "cuda":
        total = torch.cuda.get_device_properties(model.device).total_memory
        planned = plan(
            total,
            _held_bytes(config, part, model) + round(KEPT_CACHE * total),
            sum(p.numel() for p in model.parameters()),
            token_bytes(
                model.config,
                model.dtype,
                fused=decoder_of(model) is not None,
                tower_trained=not worker.model.freeze_vision_tower,
            ),
            longest,
            needed=(tokens or longest) if worker.dynamic_batching else by_samples,
            recompute=worker.model.enable_gradient_checkpointing,
            shared=worker.ulysses_size,
        )
    recompute = planned is None or planned.recompute
    if not worker.dynamic_batching:
        return Budget(None, None, recompute)
    if tokens is not None:
        return Budget(tokens, tokens, recompute)
    return planned or Budget(by_samples, worker.micro_batch_size_per_device_for_experience * longest)


def _held_bytes(config: Config, part: str, model: PreTrainedModel) -> int:
    """GPU memory that models, gradients and optimizers take, whichever part asks; only shapes count, not what is free.

    The other of actor and critic counts as large as this one where its weights are the same or cannot be counted.
    """
    own, trained = (sum(p.numel() for p in model.parameters() if p.requires_grad >= only) for only in (False, True))
    held = model_bytes(own - trained, model.dtype, trained=False) + model_bytes(trained, model.dtype, trained=True)
    held += head_bytes(model.config, model.dtype)
    actor, adapters = own, config.worker.actor.model.lora.rank > 0
    if "values" in needs_of(config.algorithm.adv_estimator):
        paths = {"actor": config.worker.actor.model.model_path, "critic": critic_model(config).model_path}
        other = "critic" if part == "actor" else "actor"
        path = local_name(config, paths[other] or "")
        size = own if paths["actor"] == paths["critic"] else count_parameters(path) or own
        whole = other == "critic" or not adapters
        held += model_bytes(size, choose_placement(config, other).dtype, trained=whole)
        actor = own if part == "actor" else size
    if needs_reference(config.algorithm) and not adapters:  # whose base is the reference
        held += model_bytes(actor, choose_placement(config).dtype, trained=False)
    return held


def recompute_old_log_probs(config: Config) -> bool:
    """Whether old log-probs need a pass of their own.

    With one update per rollout and the native engine the sampler's numbers are the learner's own. With more updates
    the ratio is taken against them many times over, and another engine, or one on devices of its own where nothing is
    sharded, computes them differently: then they are made by the learner.
    """
    actor, correction = config.worker.actor, config.algorithm.rollout_correction
    if actor.recompute_old_log_probs is not None:
        return actor.recompute_old_log_probs
    if correction.active:  # which compares the learner's with the sampler's, or takes the latter for old ones
        return not correction.bypass_mode
    most_groups = config.data.rollout_batch_size * config.trainer.rejection_sample_multiplier
    one_update = actor.ppo_epochs == 1 and actor.global_batch_size >= most_groups
    own = config.worker.rollout.name == "native" and config.trainer.placement.rollout is None
    return not (one_update and own)
