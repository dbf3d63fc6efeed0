"""Rows of verl's rollout (the engine, validation, agents) and of its rewards."""

from __future__ import annotations

from whet.compat.keys.row import Row, absent, harmless, mapped, renamed, under

_ENGINE = "how that engine is run; whet's sampler reads the learner's weights and has none of it"
_AGENTS = "worker.rollout.max_turns"
_REWARD_MODEL = " ".join(
    f"worker.reward.model.{name}" for name in ("path", "trust_remote_code", "offload", "max_length", "device")
)

ROLLOUT: list[Row] = [
    *mapped(
        "name",
        "worker.rollout.name",
        "native, which samples with the learner's weights; vllm where it is installed",
        rule="engine",
    ),
    *mapped(
        "tensor_model_parallel_size",
        "worker.rollout.tensor_parallel_size",
        "splits that engine only; no numbers depend on it",
        rule="engine",
    ),
    *renamed({name: f"worker.rollout.{name}" for name in ("n", "temperature", "top_p", "ignore_eos")}),
    *mapped("top_k", "worker.rollout.top_k", "0, the name of none on other engines, = -1", value="top_k"),
    *absent("use_fire_sampling", "a hot first token is not here; set it to False", (False,)),
    *absent("multi_turn.completion_callback", "callbacks of yours are environments here: set worker.rollout.env"),
    *mapped("seed", "worker.rollout.seed", given=True),
    *mapped("repetition_penalty", "", "1 is none", rule="repetition"),
    *mapped("limit_images", "worker.rollout.limit_images", value="count"),
    *renamed(
        {
            name: f"worker.rollout.{name}"
            for name in (
                "gpu_memory_utilization",
                "enforce_eager",
                "enable_chunked_prefill",
                "max_num_batched_tokens",
                "max_num_seqs",
                "disable_log_stats",
                "enable_prefix_caching",
            )
        },
        given=True,
    ),
    *mapped(
        "max_model_len", "worker.rollout.max_model_len", "null where it is less than prompt + response", rule="engine"
    ),
    *mapped(
        "dtype", "worker.rollout.dtype", "the learner's dtype unless the engine has weights of its own", rule="engine"
    ),
    *mapped(
        "log_prob_micro_batch_size_per_gpu log_prob_micro_batch_size",
        "worker.actor.micro_batch_size_per_device_for_experience",
        "memory only",
        rule="micro_batches",
    ),
    *harmless("log_prob_*", "batching of a forward pass: no numbers depend on it here"),
    *mapped(
        "prompt_length response_length",
        "data.max_prompt_length data.max_response_length",
        "follow data.max_*_length",
        rule="lengths",
    ),
    *under(
        "val_kwargs",
        mapped(
            "n temperature top_p top_k",
            "worker.rollout.val_override_config",
            "greedy with n=1 where the command is silent",
            rule="validation",
        ),
        harmless("do_sample", "only the temperature counts there too: 0 is greedy"),
    ),
    *under(
        "multi_turn",
        mapped(
            "enable max_assistant_turns max_user_turns tool_config_path function_tool_path",
            f"{_AGENTS} worker.rollout.tools",
            "tools make an agent; enable alone chooses nothing there",
            rule="agents",
        ),
        mapped("interaction_config_path", "worker.rollout.interaction", "a simulated user answers", rule="agents"),
        mapped("format", "worker.rollout.tool_format", "how calls are written", rule="agents"),
        mapped(
            "max_parallel_calls max_tool_response_length tool_response_truncate_side",
            "worker.rollout.max_parallel_calls worker.rollout.max_tool_response_length "
            "worker.rollout.tool_response_truncate_side",
            "verl runs one call of a turn and shows 256 characters where the command is silent",
            rule="agents",
        ),
        harmless("*", "how turns are tokenized and repeated there; tokens are never encoded twice here"),
    ),
    *under(
        "agent",
        mapped("default_agent_loop", _AGENTS, rule="agents"),
        mapped("agent_loop_config_path", _AGENTS, "verl's own loops by other names; yours are refused", rule="agents"),
        absent(
            "agent_loop_manager_class custom_async_server.path",
            "loops of yours are environments here: set worker.rollout.env",
        ),
        harmless("*", "how agents are run there"),
    ),
    *harmless("over_sample_rate", "speed only: the slowest samples are dropped there, and waited for here"),
    *harmless("enable_rollout_routing_replay", "see actor.router_replay.mode"),
    *absent("skip_rollout skip.enable skip.*enable", "saved rollouts are not replayed here; leave it out", (False,)),
    *absent(
        "quantization quantization_config_file",
        "leave it null; the native engine has worker.rollout.quantization=fp8",
    ),
    *absent("mtp.enable mtp.enable_rollout", "multi-token prediction is not here; set it to False", (False,)),
    *absent("qat.enable disaggregation.enabled", "that form of serving is not here; set it to False", (False,)),
    *absent(
        "engine_kwargs.*.kv_cache_dtype engine_kwargs.*.quantization engine_kwargs.*.hf_overrides "
        "engine_kwargs.*.rope_scaling",
        "it changes what the engine computes; the learner's weights are sampled as they are here",
    ),
    *mapped("nnodes n_gpus_per_node", "trainer.placement.rollout", "devices that only sample", rule="devices"),
    *harmless("mode", "whet samples asynchronously anyway"),
    *harmless("do_sample", "sampling follows the temperature; 0 is greedy"),
    *harmless("engine_kwargs engine_kwargs.*", _ENGINE),
    *harmless("*", _ENGINE, closed=True),
]

REWARD: list[Row] = [
    *mapped(
        "custom_reward_function.path custom_reward_function.name",
        "worker.reward.reward_function",
        "path:name",
        rule="reward",
    ),
    *mapped(
        "custom_reward_function.reward_kwargs custom_reward_function.reward_kwargs.*",
        "worker.reward.reward_function_kwargs",
        rule="reward",
    ),
    *mapped(
        "reward_model.reward_manager reward_manager.name",
        "worker.reward.manager",
        "naive, batch, prime, dapo: a scorer by data_source unless a function is set",
        rule="reward",
    ),
    *absent(
        "reward_manager.source reward_manager.module.path",
        "managers of yours are not here: set custom_reward_function, which may take a whole batch",
        ("register",),
    ),
    *harmless("reward_manager.module.name", "counts only with a manager of yours"),
    *mapped(
        "reward_model.reward_kwargs.overlong_buffer_cfg.* reward_model.overlong_buffer.*",
        "worker.reward.overlong_buffer",
        "training only here",
        rule="overlong",
    ),
    *mapped("reward_model.reward_kwargs.max_resp_len", "data.max_response_length", "the same length", rule="overlong"),
    *absent("reward_model.reward_kwargs.*", "arguments of a manager that are not known here"),
    *mapped("reward_model.sandbox_fusion.url sandbox_fusion.url", "sandbox.url", rule="sandbox"),
    *harmless("reward_model.sandbox_fusion.* sandbox_fusion.*", "limits of the remote sandbox; see sandbox.*"),
    *mapped(
        "reward_model.enable reward_model.model.path reward_model.model.trust_remote_code "
        "reward_model.model.fsdp_config.param_offload reward_model.max_length",
        _REWARD_MODEL,
        "a model that scores responses",
        rule="reward_model",
    ),
    *absent(
        "reward_model.reward_loop_module_path reward_model.reward_loop_class_name",
        "loops of yours are not here: set custom_reward_function",
    ),
    *harmless(
        "reward_model.launch_reward_fn_async reward_model.num_workers reward_model.use_reward_loop "
        "reward_model.reward_loop_source",
        "rewards have processes of their own here, and overlap with sampling",
    ),
    *harmless(
        "reward_model.*",
        "where a reward model runs and how it is batched; counts only with reward_model.enable",
        closed=True,
    ),
    *harmless("reward.*", "where rewards run there", closed=True),
]
