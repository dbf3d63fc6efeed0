"""Rows of verl's main_ppo and its relatives (one step off policy, fully asynchronous, DAPO's recipe, Megatron)."""

from __future__ import annotations

from whet.compat.keys.row import Row, Table, absent, harmless, mapped, renamed, under
from whet.compat.keys.verl_models import PROFILING, actor_rows, critic_rows, model_rows, ref_rows

_ENGINE = "how that engine is run; whet's sampler reads the learner's weights and has none of it"
_COLUMNS = "every column of a row is kept here"
_AGENTS = "worker.rollout.max_turns"
_REWARD_MODEL = "worker.reward.model.path"

DATA: list[Row] = [
    *mapped("train_files", "data.train_files", "a list becomes one text with commas", value="files"),
    *mapped("val_files", "data.val_files", "a list becomes one text with commas", value="files"),
    *mapped("train_batch_size", "data.rollout_batch_size", "prompts of a step", rule="prompts"),
    *mapped(
        "gen_batch_size",
        "data.mini_rollout_batch_size",
        "prompts drawn at a time where groups are filtered; without a filter it is the number of prompts of a step",
        rule="prompts",
    ),
    *renamed(
        {
            name: f"data.{name}"
            for name in (
                "prompt_key",
                "image_key",
                "video_key",
                "max_prompt_length",
                "max_response_length",
                "shuffle",
                "filter_overlong_prompts",
            )
        }
    ),
    *mapped("filter_overlong_prompts_workers", "data.filter_overlong_prompts_workers", "speed only", given=True),
    *mapped("val_batch_size", "data.val_batch_size", "null = -1", value="all_if_null"),
    *mapped(
        "seed", "data.seed", "null there is a fixed seed; orders of other systems cannot be repeated here", value="seed"
    ),
    *mapped(
        "trust_remote_code",
        "worker.actor.model.trust_remote_code",
        "asked for twice there; either true is true",
        rule="trust",
    ),
    *mapped("tokenizer", "worker.actor.model.tokenizer_path", "null is the model's", rule="tokenizer"),
    *absent(
        "train_max_samples val_max_samples",
        "whet reads all rows: cut the file, or name a split of the hub such as org/name@train[:1000]",
        (-1,),
    ),
    *mapped("reward_fn_key", "", "the column that chooses a scorer is data_source here", rule="reward_fn_key"),
    *absent(
        "custom_cls.path",
        "data sets by a class of yours are not here: write the rows to a file, with a template in data.format_prompt",
    ),
    *harmless("custom_cls.name", "counts only with custom_cls.path"),
    *absent(
        "sampler.class_path sampler.class_name",
        "samplers of yours are not here; see trainer.stages for settings that change during a run",
    ),
    *absent("datagen.path", "data that is made during training is not here: see worker.rollout.env"),
    *harmless("datagen.name", "counts only with datagen.path"),
    *absent(
        "apply_chat_template_kwargs apply_chat_template_kwargs.* mm_processor_kwargs mm_processor_kwargs.*",
        "arguments of the chat template are not here: set data.override_chat_template to one that has them",
        ({},),
    ),
    *mapped("tool_config_path function_tool_path", "worker.rollout.tools", "the tools of multi_turn", rule="agents"),
    *mapped(
        "image_patch_size",
        "data.min_pixels data.max_pixels",
        "images have 4 to 16384 squares of two patches a side",
        rule="pixels",
    ),
    *harmless("truncation", "prompts are never cut; data.filter_overlong_prompts says whether long ones are left out"),
    *harmless("return_raw_chat return_raw_input_ids return_full_prompt return_multi_modal_inputs", _COLUMNS),
    *harmless(
        "dataloader_num_workers use_shm validation_shuffle audio_key",
        "how rows are loaded there: no numbers depend on it",
    ),
]

ALGORITHM: list[Row] = [
    *renamed({name: f"algorithm.{name}" for name in ("gamma", "lam", "adv_estimator", "use_pf_ppo")}),
    *renamed(
        {
            "norm_adv_by_std_in_grpo": "algorithm.norm_adv_by_std",
            "pf_ppo.reweight_method": "algorithm.pf_ppo.reweight_method",
            "pf_ppo.weight_pow": "algorithm.pf_ppo.weight_pow",
        }
    ),
    *mapped("gdpo_reward_keys", "algorithm.gdpo_reward_keys", value="listed"),
    *mapped("gdpo_reward_weights", "algorithm.gdpo_reward_weights", value="listed"),
    *mapped(
        "use_kl_in_reward kl_penalty kl_ctrl.type kl_ctrl.kl_coef kl_ctrl.horizon kl_ctrl.target_kl",
        "algorithm.use_kl_loss algorithm.kl_penalty algorithm.kl_type algorithm.kl_coef algorithm.kl_horizon "
        "algorithm.kl_target",
        "count only where KL is in the reward (use_kl_in_reward)",
        rule="kl",
    ),
    *mapped("filter_groups.enable", "algorithm.filter_groups.enable", value="switch"),
    *mapped("filter_groups.metric", "algorithm.filter_groups.metric", "null and reward = overall", value="metric"),
    *mapped("filter_groups.max_num_gen_batches", "algorithm.filter_groups.max_num_gen_batches"),
    *harmless("filter_groups filter_groups.max_inflight_gen_batches", "how draws are made there"),
    *mapped(
        "rollout_correction rollout_correction.*", "algorithm.rollout_correction", "the same names", rule="correction"
    ),
]

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
    *renamed({name: f"worker.rollout.{name}" for name in ("n", "temperature", "top_p", "top_k", "ignore_eos")}),
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
        absent("interaction_config_path", "interactions are environments here: write one, and set worker.rollout.env"),
        mapped("format", "worker.rollout.tool_format", "how calls are written", rule="agents"),
        mapped("max_tool_response_length tool_response_truncate_side", "worker.rollout.max_turn_tokens", rule="agents"),
        harmless("*", "how turns are tokenized and repeated there; tokens are never encoded twice here"),
    ),
    *under(
        "agent",
        mapped("default_agent_loop", _AGENTS, rule="agents"),
        absent(
            "agent_loop_config_path agent_loop_manager_class custom_async_server.path",
            "loops of yours are environments here: set worker.rollout.env",
        ),
        harmless("*", "how agents are run there"),
    ),
    *harmless("over_sample_rate", "speed only: the slowest samples are dropped there, and waited for here"),
    *harmless("enable_rollout_routing_replay", "see actor.router_replay.mode"),
    *absent("skip_rollout skip.enable skip.*enable", "saved rollouts are not replayed here; leave it out", (False,)),
    *absent("quantization quantization_config_file", "a quantized sampler is not here; leave it null"),
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
        "reward_model.enable reward_model.model.path",
        _REWARD_MODEL,
        "a model that scores responses",
        rule="reward_model",
    ),
    *mapped("reward_model.rollout.name", "worker.reward.model.kind", rule="reward_model"),
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

TRAINER: list[Row] = [
    *renamed({name: f"trainer.{name}" for name in ("project_name", "experiment_name", "val_before_train", "val_only")}),
    *mapped(
        "logger",
        "trainer.logger",
        "a word or a list; loggers that are not here are left out, and the run folder always has a file",
        value="loggers",
    ),
    *mapped("total_epochs", "trainer.total_epochs", "30 where the command is silent", rule="length"),
    *mapped(
        "total_training_steps",
        "trainer.max_steps",
        "a ceiling there: the run ends at total_epochs if that comes first",
        rule="length",
    ),
    *mapped("nnodes n_gpus_per_node", "trainer.nnodes trainer.n_gpus_per_node", rule="devices"),
    *mapped("test_freq", "trainer.val_freq", "0 = -1", value="frequency"),
    *mapped("save_freq", "trainer.save_freq", "-1 never saves there; here the last step is saved", value="frequency"),
    *mapped("critic_warmup", "trainer.critic_warmup", "N means N - 1 steps there", value="one_less"),
    *mapped("default_local_dir", "trainer.save_checkpoint_path", given=True),
    *mapped(
        "resume_mode resume_from_path",
        "trainer.find_last_checkpoint trainer.load_checkpoint_path",
        "auto = true, disable = false, resume_path = the path",
        rule="resume",
    ),
    *mapped(
        "log_val_generations val_generations_to_log_to_wandb val_generations_to_log", "trainer.val_generations_to_log"
    ),
    *mapped("max_actor_ckpt_to_keep", "trainer.save_limit", "null = -1", value="all_if_null"),
    *harmless("max_critic_ckpt_to_keep", "one checkpoint holds both here"),
    *mapped("device", "trainer.device", "cuda where a command says so; npu is not here", rule="device"),
    *renamed(
        {
            "rejection_sample": "trainer.rejection_sample",
            "rejection_sample_multiplier": "trainer.rejection_sample_multiplier",
        }
    ),
    *absent("default_hdfs_dir", "checkpoints are written to trainer.save_checkpoint_path only; leave it null"),
    *harmless(
        "rollout_data_dir validation_data_dir stats_path stats_save_freq",
        "samples are always written to the run folder here",
    ),
    *harmless("balance_batch", "micro-batches are balanced by tokens already"),
    *harmless("*", "how the run is managed there: no numbers depend on it", closed=True),
]

ASYNCHRONOUS: list[Row] = [
    *mapped(
        "rollout.nnodes rollout.n_gpus_per_node",
        "trainer.placement.rollout",
        "devices that only sample, beside trainer.nnodes x n_gpus_per_node that learn",
        rule="devices",
    ),
    *mapped(
        "async_training.staleness_threshold async_training.trigger_parameter_sync_step async_training.require_batches",
        "trainer.max_staleness",
        "versions by which a sample may be old",
        rule="staleness",
    ),
    *mapped(
        "async_training.partial_rollout", "trainer.max_staleness", "samples go on with new weights", rule="staleness"
    ),
    *mapped(
        "async_training.use_rollout_log_probs",
        "worker.actor.recompute_old_log_probs",
        "true = the sampler's log-probs are the old ones",
        rule="old_log_probs",
    ),
    *absent(
        "async_training.compute_prox_log_prob",
        "a proximal policy apart from the old one is not here; set it to False",
        (False,),
    ),
    *harmless("async_training.*", "how weights travel there"),
    *mapped("rollout.total_rollout_steps", "trainer.max_steps", "prompts in all", rule="length"),
    *mapped("rollout.total_epochs", "", "at most so many passes over the data", rule="length"),
    *mapped("rollout.test_freq", "trainer.val_freq", "in parameter versions", rule="staleness"),
    *harmless("rollout.n", "read by nobody there"),
    *harmless("transfer_queue.* ray_kwargs ray_kwargs.* ray_init.*", "how its processes exchange data"),
    *harmless("hydra.*", "Hydra's own folders and logs; whet has a run folder"),
]

VERL = Table(
    PROFILING,
    under("data", DATA),
    under("algorithm", ALGORITHM),
    under("actor_rollout_ref.actor", actor_rows()),
    under("actor_rollout_ref.ref", ref_rows()),
    under("actor_rollout_ref.rollout", ROLLOUT),
    under("actor_rollout_ref.model", model_rows("actor")),
    mapped(
        "actor_rollout_ref.hybrid_engine",
        "worker.hybrid_engine",
        "false wants devices that only sample",
        rule="devices",
    ),
    harmless("actor_rollout_ref.nccl_timeout actor_rollout_ref.checkpoint_engine.*", "how weights travel there"),
    under("critic", critic_rows()),
    REWARD,
    under("trainer", TRAINER),
    ASYNCHRONOUS,
    absent("distillation.enabled", "distillation is not here; set it to False", (False,)),
    harmless("distillation.*", "counts only with distillation.enabled"),
    harmless("model_engine", "chooses the files of FSDP or Megatron, whose keys are read alike here"),
    absent("skip.*", "saved rollouts are not replayed here", (False, None)),
)
