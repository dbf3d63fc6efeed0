"""Names that are not settable here, each with the sentence that says what to set instead.

`DERIVED` are EasyR1's keys that follow from others. `REPLACED` are verl's names that have no key of the same meaning;
a name stands for everything below it too. `PLANNED` are parts of names that belong to features of a later version,
wherever they stand in a name that is no key.
"""

from __future__ import annotations

DERIVED: dict[str, str] = {
    "worker.actor.optim.training_steps": "it follows from trainer.max_steps, or trainer.total_epochs and the data",
    "worker.actor.global_batch_size_per_device": (
        "it follows from worker.actor.global_batch_size, worker.rollout.n and the number of devices"
    ),
    "worker.actor.disable_kl": "it follows algorithm.disable_kl; set that",
    "worker.actor.use_kl_loss": "it follows algorithm.use_kl_loss; set that",
    "worker.actor.kl_penalty": "it follows algorithm.kl_penalty; set that",
    "worker.actor.kl_coef": "it follows algorithm.kl_coef; set that",
    "worker.critic.optim.training_steps": "it follows from trainer.max_steps, or trainer.total_epochs and the data",
    "worker.critic.global_batch_size_per_device": (
        "it follows from worker.critic.global_batch_size, worker.rollout.n and the number of devices"
    ),
    "worker.ref.micro_batch_size_per_device_for_experience": (
        "it follows worker.actor.micro_batch_size_per_device_for_experience; set that"
    ),
    "worker.ref.padding_free": "it follows worker.actor.padding_free; set that",
    "worker.ref.dynamic_batching": "it follows worker.actor.dynamic_batching; set that",
    "worker.ref.ulysses_size": "it follows worker.actor.ulysses_size; set that",
    "worker.ref.use_torch_compile": "it follows worker.actor.use_torch_compile; set that",
    "worker.reward.reward_function_name": (
        "it is the part after the colon of worker.reward.reward_function=path.py:function"
    ),
    "worker.rollout.prompt_length": "it follows data.max_prompt_length; set that",
    "worker.rollout.response_length": "it follows data.max_response_length; set that",
    "worker.rollout.trust_remote_code": "it follows worker.actor.model.trust_remote_code; set that",
}

_TURNS = "tokens between turns are exact whatever the template does; leave it out"
REPLACED: dict[str, str] = {
    "actor_rollout_ref.rollout.prompt_length": "set data.max_prompt_length",
    "actor_rollout_ref.rollout.response_length": "set data.max_response_length",
    "actor_rollout_ref.rollout.do_sample": "set worker.rollout.temperature; 0 is greedy",
    "actor_rollout_ref.rollout.val_kwargs.do_sample": (
        "set worker.rollout.val_override_config.temperature; 0 is greedy"
    ),
    "actor_rollout_ref.rollout.calculate_log_probs": "the sampler's log-probs are always kept; leave it out",
    "actor_rollout_ref.rollout.free_cache_engine": "the native engine has no second copy of the weights to free",
    "actor_rollout_ref.rollout.load_format": "the native engine reads the learner's weights",
    "actor_rollout_ref.actor.clip_ratio": "set worker.actor.clip_ratio_low and worker.actor.clip_ratio_high",
    "actor_rollout_ref.actor.ppo_micro_batch_size": "set worker.actor.micro_batch_size_per_device_for_update",
    "actor_rollout_ref.actor.shuffle": "mini-batches are taken in the order of the prompts; see data.shuffle",
    "actor_rollout_ref.model.use_remove_padding": "samples are always packed; leave it out",
    "actor_rollout_ref.model.use_liger": "log-probs are always computed in chunks; leave it out",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": (
        "set worker.actor.micro_batch_size_per_device_for_experience"
    ),
    "actor_rollout_ref.ref.log_prob_use_dynamic_bsz": "set worker.actor.dynamic_batching",
    "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu": "set worker.actor.micro_batch_tokens",
    "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz": "set worker.actor.dynamic_batching",
    "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu": "set worker.actor.micro_batch_tokens",
    "actor_rollout_ref.actor.megatron": "Megatron is not used here; models are spread by FSDP",
    "actor_rollout_ref.ref.megatron": "Megatron is not used here; models are spread by FSDP",
    "algorithm.use_kl_in_reward": (
        "set algorithm.use_kl_loss=false for KL in the reward, algorithm.disable_kl=true for none"
    ),
    "actor_rollout_ref.rollout.multi_turn.max_user_turns": "set worker.rollout.max_turns (the policy's)",
    "actor_rollout_ref.rollout.multi_turn.function_tool_path": "set worker.rollout.tools=[path.py:function]",
    "actor_rollout_ref.rollout.multi_turn.use_inference_chat_template": _TURNS,
    "actor_rollout_ref.rollout.multi_turn.tokenization_sanity_check_mode": _TURNS,
    "actor_rollout_ref.rollout.multi_turn": "tools and turns are keys of worker.rollout; see docs/tools.md",
    "data.tool_config_path": "set worker.rollout.tools",
    "custom_reward_function.path": "set worker.reward.reward_function=path.py:function",
    "custom_reward_function.name": "set worker.reward.reward_function=path.py:function",
    "data.tokenizer": "set worker.actor.model.tokenizer_path",
    "data.truncation": "prompts are never cut; data.filter_overlong_prompts says whether long ones are left out",
    "data.return_raw_chat": "every column of a row is kept; leave it out",
    "data.return_raw_input_ids": "every column of a row is kept; leave it out",
    "reward_model.overlong_buffer.log": "the penalty is always logged; leave it out",
    "reward_model.reward_kwargs.overlong_buffer_cfg.log": "the penalty is always logged; leave it out",
    "reward_model.enable": "worker.reward.model.path names a reward model, null is none; leave it out",
    "reward_model.model.input_tokenizer": (
        "tokenizers are compared, and another one reads the conversation in its own chat template; leave it out"
    ),
    "reward_model.model.use_remove_padding": "set worker.reward.model.micro_batch_tokens, padding included",
    "reward_model.micro_batch_size_per_gpu": "set worker.reward.model.micro_batch_tokens",
    "reward_model.use_dynamic_bsz": "passes are always counted in tokens; set worker.reward.model.micro_batch_tokens",
    "reward_model.rollout": "a reward model runs by transformers, without an engine; leave it out",
    "reward_model.num_workers": "set worker.reward.num_cpus, the processes that run reward functions",
    "reward_model.launch_reward_fn_async": "scoring always overlaps sampling; leave it out",
    "reward_model": "see worker.reward.model for a reward model, worker.reward.judge for a judge",
    "trainer.resume_mode": "set trainer.find_last_checkpoint=true or false, or trainer.load_checkpoint_path",
    "trainer.resume_from_path": "set trainer.load_checkpoint_path",
    "trainer.stats_path": "metrics and samples are written to the run folder; leave it out",
    "trainer.stats_save_freq": "metrics are written at every step; leave it out",
    "trainer.default_hdfs_dir": "checkpoints are written to trainer.save_checkpoint_path only",
    "trainer.balance_batch": "micro-batches are balanced by tokens already; leave it out",
}

_AGENTS = "agents (programs that call the policy themselves)"
_ASYNC = "set trainer.max_staleness to 1 or more for asynchronous training (docs/async.md)"
PLANNED: dict[str, str] = dict.fromkeys(("agent", "agents", "agent_loop"), _AGENTS)
# Other systems' names, wherever they stand in a key.
NAMED_OTHERWISE: dict[str, str] = {
    **dict.fromkeys(("async", "async_training", "async_rollout", "fully_async", "max_staleness"), _ASYNC),
    **dict.fromkeys(("staleness", "staleness_threshold", "partial_rollout", "trigger_parameter_sync_step"), _ASYNC),
}


def reason_not_settable(name: str) -> str | None:
    """Return why a name cannot be set and what to set instead, or None when nothing is known about it."""
    if name in DERIVED:
        return f"cannot be set: {DERIVED[name]}"
    parts = name.split(".")
    planned = next((PLANNED[part] for part in parts if part in PLANNED), None)
    if planned is not None:
        return f"cannot be set: {planned} is not in this version yet"
    otherwise = next((NAMED_OTHERWISE[part] for part in parts if part in NAMED_OTHERWISE), None)
    if otherwise is not None:
        return f"has no key of its own: {otherwise}"
    prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    found = next((prefix for prefix in prefixes if prefix in REPLACED), None)
    return f"has no key of its own: {REPLACED[found]}" if found else None
