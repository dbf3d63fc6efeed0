"""Pieces of a run that are built from the config alone, in this process or on a rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from whet.config import Config, resolve_path
from whet.errors import UserError
from whet.learn.learner import LocalLearner
from whet.learn.partition import Budget
from whet.model.load import load_model
from whet.rewards.choice import with_match
from whet.rewards.scorer import RewardScorer
from whet.rollout.spec import engine_can
from whet.tracking.console import Console
from whet.training.device import Placement, is_distributed

if TYPE_CHECKING:
    from whet.learn.critic import LocalCritic
    from whet.rewards.protocol import SampleScorer


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
        named = {"actor": "worker.actor.model.tokenizer_path", "teacher": "algorithm.distill.model_path"}
        key = named.get(part, f"worker.{part}.model.model_path")
        raise UserError(
            f"{key}: the tokenizer has {len(tokenizer)} tokens, the model only "
            f"{text.vocab_size}: they do not belong together"
        )


def open_scorer(config: Config, tokenizer: PreTrainedTokenizerBase, console: Console, folder: Path) -> SampleScorer:
    """The reward function in its worker processes, and models that score; `folder` is the run's."""
    output = folder / "reward.log"
    if config.worker.reward.terms:
        from whet.training.reward_terms import open_mixed

        return open_mixed(config, tokenizer, console, folder, output=output)
    reward, spec = config.worker.reward, config.worker.reward.reward_function or ""
    reward = replace(reward, reward_function_kwargs=with_match(spec, reward, config.algorithm.match))
    return RewardScorer(spec, reward, resolver(config), console.warn, output, config.sandbox)


def budget(config: Config, part: str = "actor", model: PreTrainedModel | None = None) -> Budget:
    """Tokens of a micro-batch: `micro_batch_tokens`, or what a model's GPU has room for; None counts samples.

    Without a GPU it is so many of the longest samples.
    """
    worker = getattr(config.worker, part)
    longest = config.data.max_prompt_length + config.data.max_response_length
    tokens, by_samples = worker.micro_batch_tokens, worker.micro_batch_size_per_device_for_update * longest
    planned = None
    if model is not None and model.device.type == "cuda":
        from whet.training.memory import planned_budget

        planned = planned_budget(config, part, model)
    if not worker.dynamic_batching or tokens is not None:
        tokens = tokens if worker.dynamic_batching else None
        return replace(planned or Budget(None, None), tokens_update=tokens, tokens_experience=tokens)
    return planned or Budget(by_samples, worker.micro_batch_size_per_device_for_experience * longest)


def configure_models(config: Config, learner: LocalLearner, critic: LocalCritic | None) -> None:
    """Continue with the models of this process under the config of another stage."""
    temperature, actor = config.worker.rollout.temperature, config.worker.actor
    tokens = budget(config, "actor", learner.model)
    learner.configure(actor, temperature, tokens)
    if critic is not None:
        critic.configure(config.worker.critic, budget(config, "critic", critic.model.backbone))
    if learner.reference is not None:
        from whet.training.offloading import renew_reference_offload

        learner.reference.configure(actor, temperature, tokens.tokens_experience)
        renew_reference_offload(config, learner)
    if learner.teacher is not None:
        learner.teacher.configure(actor, temperature, tokens.tokens_experience)


def load_weights(path: str, config: Config, placement: Placement) -> PreTrainedModel:
    """The model in `path`, on its device."""
    model = config.worker.actor.model
    return load_model(path, placement.dtype, placement.device, model.trust_remote_code, model.override_config)


def open_learner(config: Config, model: PreTrainedModel, total_steps: int) -> LocalLearner:
    """The policy with its optimizer."""
    actor = config.worker.actor
    tokens, shared = budget(config, "actor", model), shares_weights(config)
    return LocalLearner(model, actor, config.worker.rollout.temperature, total_steps, tokens, shared)


def shares_weights(config: Config) -> bool:
    """Return True if the engine reads the learner's weights in place: on one device, where nothing is gathered."""
    return not is_distributed(config) and engine_can(config).shares_weights
