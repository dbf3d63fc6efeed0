"""Rows of verl's main_ppo and its relatives (one step off policy, fully asynchronous, DAPO's recipe, Megatron)."""

from __future__ import annotations

from whet.compat.keys.row import Row, Table, absent, harmless, mapped, renamed, under
from whet.compat.keys.verl_models import PROFILING, actor_rows, critic_rows, model_rows, ref_rows
from whet.compat.keys.verl_sampling import REWARD, ROLLOUT

_COLUMNS = "every column of a row is kept here"

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
    *mapped("train_max_samples", "data.max_train_rows", "the first rows, where verl chooses at random", rule="rows"),
    *mapped("val_max_samples", "data.max_val_rows", "the first rows, where verl chooses at random", rule="rows"),
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
    *mapped(
        "apply_chat_template_kwargs apply_chat_template_kwargs.*", "data.chat_template_args", rule="chat_template_args"
    ),
    *absent(
        "mm_processor_kwargs mm_processor_kwargs.*",
        "arguments of the processor are not here: see data.min_pixels, data.max_pixels and data.video_fps",
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
    *mapped(
        "rejection_sample rejection_sample_multiplier",
        "trainer.rejection_sample trainer.rejection_sample_multiplier",
        "the multiplier counts with rejection_sample only",
        rule="rejection",
    ),
    *mapped("default_hdfs_dir", "", "no copies: checkpoints are in trainer.save_checkpoint_path only", rule="hdfs"),
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
    *mapped(
        "async_training.compute_prox_log_prob",
        "algorithm.rollout_correction.rollout_is",
        "token weights for the policy before the update, unless algorithm.rollout_correction says otherwise",
        rule="proximal",
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
    harmless("actor_rollout_ref.nccl_timeout actor_rollout_ref.checkpoint_engine*", "how weights travel there"),
    under("critic", critic_rows()),
    REWARD,
    under("trainer", TRAINER),
    ASYNCHRONOUS,
    absent("distillation.enabled", "distillation is not here; set it to False", (False,)),
    harmless("distillation.*", "counts only with distillation.enabled"),
    harmless("model_engine", "chooses the files of FSDP or Megatron, whose keys are read alike here"),
    absent("skip.*", "saved rollouts are not replayed here", (False, None)),
)
