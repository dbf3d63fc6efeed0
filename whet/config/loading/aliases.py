"""verl's Hydra names for keys that mean the same here.

Only names whose value can be taken over as it is. Names that need another answer are in `replaced.py`.
"""

from __future__ import annotations

_MODEL = {
    "path": "model_path",
    "tokenizer_path": "tokenizer_path",
    "override_config": "override_config",
    "enable_gradient_checkpointing": "enable_gradient_checkpointing",
    "enable_activation_offload": "enable_activation_offload",
    "trust_remote_code": "trust_remote_code",
    "lora_rank": "lora.rank",
    "lora_alpha": "lora.alpha",
    "target_modules": "lora.target_modules",
    "exclude_modules": "lora.exclude_modules",
}
_OPTIM = {
    "lr": "lr",
    "betas": "betas",
    "weight_decay": "weight_decay",
    "lr_warmup_steps": "lr_warmup_steps",
    "lr_warmup_steps_ratio": "lr_warmup_ratio",
    "min_lr_ratio": "min_lr_ratio",
    "warmup_style": "lr_scheduler_type",
    "lr_scheduler_type": "lr_scheduler_type",
}
_FSDP = {
    "fsdp_config.param_offload": "offload.offload_params",
    "fsdp_config.optimizer_offload": "offload.offload_optimizer",
    "fsdp_config.fsdp_size": "fsdp.fsdp_size",
    "fsdp_config.model_dtype": "fsdp.torch_dtype",
}
_ACTOR = {
    "strategy": "strategy",
    "ppo_mini_batch_size": "global_batch_size",
    "ppo_micro_batch_size_per_gpu": "micro_batch_size_per_device_for_update",
    "ppo_max_token_len_per_gpu": "micro_batch_tokens",
    "use_dynamic_bsz": "dynamic_batching",
    "ppo_epochs": "ppo_epochs",
    "grad_clip": "max_grad_norm",
    "clip_ratio_low": "clip_ratio_low",
    "clip_ratio_high": "clip_ratio_high",
    "clip_ratio_c": "clip_ratio_dual",
    "loss_agg_mode": "loss_avg_mode",
    "ulysses_sequence_parallel_size": "ulysses_size",
    "use_torch_compile": "use_torch_compile",
    "entropy_coeff": "entropy_coeff",
    "tau_pos": "tau_positive",
    "tau_neg": "tau_negative",
    "policy_loss.loss_mode": "loss_type",
    "policy_loss.clip_cov_ratio": "clip_cov_ratio",
    "policy_loss.clip_cov_lb": "clip_cov_lb",
    "policy_loss.clip_cov_ub": "clip_cov_ub",
    "policy_loss.kl_cov_ratio": "kl_cov_ratio",
    "policy_loss.ppo_kl_coef": "ppo_kl_coef",
    "policy_loss.dro_beta": "dro_beta",
}
_ROLLOUT = {
    "name": "name",
    "n": "n",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "seed": "seed",
    "dtype": "dtype",
    "ignore_eos": "ignore_eos",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "tensor_model_parallel_size": "tensor_parallel_size",
    "enforce_eager": "enforce_eager",
    "enable_chunked_prefill": "enable_chunked_prefill",
    "max_model_len": "max_model_len",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "max_num_seqs": "max_num_seqs",
    "disable_log_stats": "disable_log_stats",
    "val_kwargs.n": "val_override_config.n",
    "val_kwargs.temperature": "val_override_config.temperature",
    "val_kwargs.top_p": "val_override_config.top_p",
    "val_kwargs.top_k": "val_override_config.top_k",
    "multi_turn.enable": "multi_turn",
    "multi_turn.max_assistant_turns": "max_turns",
    "multi_turn.max_parallel_calls": "max_parallel_calls",
    "multi_turn.max_tool_response_length": "max_tool_response_length",
    "multi_turn.tool_response_truncate_side": "tool_response_truncate_side",
    "multi_turn.tool_config_path": "tools",
    "multi_turn.interaction_config_path": "interaction",
    "multi_turn.format": "tool_format",
    "n_val": "val_override_config.n",
    "val_temperature": "val_override_config.temperature",
}
_CRITIC = {
    "strategy": "strategy",
    "ppo_mini_batch_size": "global_batch_size",
    "ppo_micro_batch_size_per_gpu": "micro_batch_size_per_device_for_update",
    "ppo_max_token_len_per_gpu": "micro_batch_tokens",
    "forward_micro_batch_size_per_gpu": "micro_batch_size_per_device_for_experience",
    "ppo_epochs": "ppo_epochs",
    "grad_clip": "max_grad_norm",
    "cliprange_value": "cliprange_value",
    "loss_agg_mode": "loss_avg_mode",
    "use_dynamic_bsz": "dynamic_batching",
    "ulysses_sequence_parallel_size": "ulysses_size",
}
_OVERLONG = {name: name for name in ("enable", "len", "penalty_factor")}
_ADAPTIVE_ENTROPY = {
    name: name for name in ("enabled", "target_entropy", "max_ent_coef", "min_ent_coef", "delta_ent_coef")
}
_OR1_REWARD = {name: name for name in ("is_binary_reward", "is_power4_reward")}  # options of the scorer code
_REWARD_MODEL = {
    "model.path": "path",
    "model.trust_remote_code": "trust_remote_code",
    "model.fsdp_config.param_offload": "offload",
    "max_length": "max_length",
    "forward_max_token_len_per_gpu": "micro_batch_tokens",
}
# VPPO-RL has these in both places; the actor's are overwritten there.
_VPPO = {
    name: name
    for name in (
        "use_vppo_on_perception",
        "top_p_perception_tokens",
        "use_vppo_on_entropy",
        "top_p_entropy_tokens",
        "use_advantage_shaping",
        "advantage_scaling_min",
        "use_entropy_penalty",
        "entropy_penalty_coef",
    )
}


def _under(theirs: str, ours: str, names: dict[str, str]) -> dict[str, str]:
    return {f"{theirs}.{name}": f"{ours}.{target}" for name, target in names.items()}


ALIASES: dict[str, str] = {
    "data.train_batch_size": "data.rollout_batch_size",
    "data.gen_batch_size": "data.mini_rollout_batch_size",
    "actor_rollout_ref.hybrid_engine": "worker.hybrid_engine",
    **_under("actor_rollout_ref.model", "worker.actor.model", _MODEL),
    **_under("actor_rollout_ref.actor", "worker.actor", _ACTOR | _FSDP),
    **_under("actor_rollout_ref.actor.optim", "worker.actor.optim", _OPTIM),
    "actor_rollout_ref.actor.use_kl_loss": "algorithm.use_kl_loss",
    "actor_rollout_ref.actor.kl_loss_coef": "algorithm.kl_coef",
    "actor_rollout_ref.actor.kl_loss_type": "algorithm.kl_penalty",
    **_under("actor_rollout_ref.ref", "worker.ref", _FSDP),
    **_under("actor_rollout_ref.rollout", "worker.rollout", _ROLLOUT),
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": (
        "worker.actor.micro_batch_size_per_device_for_experience"
    ),
    **_under("critic", "worker.critic", _CRITIC),
    **_under("critic.model", "worker.critic.model", _MODEL),
    **_under("critic.model", "worker.critic", _FSDP),
    **_under("critic.optim", "worker.critic.optim", _OPTIM),
    "custom_reward_function.reward_kwargs": "worker.reward.reward_function_kwargs",
    "algorithm.norm_adv_by_std_in_grpo": "algorithm.norm_adv_by_std",
    "algorithm.kl_ctrl.type": "algorithm.kl_type",
    "algorithm.kl_ctrl.kl_coef": "algorithm.kl_coef",
    "algorithm.kl_ctrl.horizon": "algorithm.kl_horizon",
    "algorithm.kl_ctrl.target_kl": "algorithm.kl_target",
    "reward_model.reward_manager": "worker.reward.manager",
    **_under("reward_model", "worker.reward.reward_function_kwargs", _OR1_REWARD),
    **_under("reward_model", "worker.reward.model", _REWARD_MODEL),
    **_under("reward_model.overlong_buffer", "worker.reward.overlong_buffer", _OVERLONG),
    **_under("reward_model.reward_kwargs.overlong_buffer_cfg", "worker.reward.overlong_buffer", _OVERLONG),
    **_under("actor_rollout_ref.actor.adaptive_entropy", "worker.actor.adaptive_entropy", _ADAPTIVE_ENTROPY),
    **_under("worker.actor", "algorithm", _VPPO),
    "trainer.total_training_steps": "trainer.max_steps",
    "trainer.test_freq": "trainer.val_freq",
    "trainer.default_local_dir": "trainer.save_checkpoint_path",
    "trainer.max_actor_ckpt_to_keep": "trainer.save_limit",
    "trainer.log_val_generations": "trainer.val_generations_to_log",
}
