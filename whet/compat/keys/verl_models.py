"""Rows of verl's actor, reference, critic and optimizer; Skywork-OR1's old forms of the same keys are here too."""

from __future__ import annotations

from whet.compat.keys.megatron import FOLLOWS, ROUTING, megatron_rows
from whet.compat.keys.row import Row, absent, harmless, mapped, renamed, under

_KERNELS = "kernels and memory only: samples are always packed and log-probs computed in chunks here"
_PASS = "batching of a forward pass: no numbers depend on it here"

PROFILING = harmless(
    "*profiler* *.prometheus.* *.trace.*", "profiles and traces: no numbers depend on it; whet writes none of these"
)


def model_rows(part: str) -> list[Row]:
    """Rows below `actor_rollout_ref.model` or `critic.model`."""
    to = f"worker.{part}.model"
    return [
        *mapped("path", f"{to}.model_path", value="path"),
        *mapped(
            "tokenizer_path",
            f"{to}.tokenizer_path" if part == "actor" else "",
            "null is the model's own; the critic reads the actor's tokens here",
            rule="tokenizer",
        ),
        *renamed({"trust_remote_code": f"{to}.trust_remote_code"}),
        *mapped("enable_gradient_checkpointing", f"{to}.enable_gradient_checkpointing", "memory only", given=True),
        *mapped(
            "enable_activation_offload",
            f"{to}.enable_activation_offload",
            "memory only; recomputes layers here, and does nothing with enable_gradient_checkpointing=False",
            given=True,
        ),
        *harmless("override_config.attn_implementation", "whet registers an attention function of its own"),
        *absent("override_config.moe_config.freeze_moe_router", "training with a frozen router is not here", (False,)),
        *harmless("override_config.moe_config", "empty unless it has keys below it"),
        *mapped(
            "override_config override_config.*",
            f"{to}.override_config",
            "values of the model's config.json; model_config.NAME (Megatron's place) is NAME",
            rule="override_config",
        ),
        *harmless(
            "use_remove_padding use_fused_kernels use_liger fused_kernel_options.* tiled_mlp.* "
            "use_shm load_tokenizer model_type gradient_checkpointing_kwargs.*",
            _KERNELS,
        ),
        *mapped("lora_rank", f"{to}.lora.rank", rule="lora"),
        *mapped("lora_alpha", f"{to}.lora.alpha", "16 where the command is silent; ours is 64", rule="lora"),
        *mapped("target_modules", f"{to}.lora.target_modules", "a list becomes names with commas", rule="lora"),
        *mapped("exclude_modules", f"{to}.lora.exclude_modules", rule="lora"),
        *absent(
            "lora_adapter_path lora.adapter_path",
            "training does not start from a saved adapter: merge it first with `whet merge`, and train a new one",
        ),
        *mapped("lora.rank lora.alpha lora.target_modules lora.exclude_modules", f"{to}.lora.rank", rule="lora"),
        *absent("lora.dropout", "adapters have no dropout here; set it to 0", when="lora.rank"),
        *harmless("lora lora.*", "Megatron's way to make adapters: no numbers depend on it with its usual values"),
        *absent("target_parameters", "adapters of parameters that are no modules are not here"),
        *(
            mapped("custom_chat_template", "data.override_chat_template")
            if part == "actor"
            else harmless("custom_chat_template", "the critic reads the actor's prompts")
        ),
        *absent("hf_config_path", "the config is read from the model's folder; put config.json there"),
        *absent("external_lib", "no Python module is imported for the model; see algorithm.extensions for functions"),
        *absent("mtp.enable", "multi-token prediction is not here; set it to False"),
        *harmless("mtp.*", "counts only with mtp.enable, which is not here"),
    ]


def optim_rows(part: str) -> list[Row]:
    """Rows below an optimizer's section; FSDP's and Megatron's names."""
    to = f"worker.{part}.optim"
    return [
        *renamed({name: f"{to}.{name}" for name in ("lr", "betas", "weight_decay")}),
        *mapped(
            "lr_warmup_steps lr_warmup_steps_ratio warmup_steps_ratio",
            f"{to}.lr_warmup_steps {to}.lr_warmup_ratio",
            "-1 or null steps = by ratio; there the first step of a warmup has rate 0, here 1/W",
            rule="schedule",
        ),
        *mapped(
            "lr_scheduler_type warmup_style lr_decay_style lr_scheduler",
            f"{to}.lr_scheduler_type",
            "constant and cosine",
            rule="schedule",
        ),
        *mapped("min_lr_ratio min_lr", f"{to}.min_lr_ratio", "min_lr / lr = min_lr_ratio", rule="schedule"),
        *harmless(
            "lr_decay_steps lr_wsd_decay_style lr_wsd_decay_steps use_checkpoint_opt_param_scheduler "
            "total_training_steps",
            "the schedule ends with the run here",
        ),
        *absent("lr_warmup_init", "a warmup starts at 0 here", (0,)),
        *absent("weight_decay_incr_style", "weight decay stays as it is here", ("constant",)),
        *absent("num_cycles", "the cosine schedule has half a cycle here", (0.5,)),
        *mapped(
            "clip_grad grad_clip",
            f"worker.{part}.max_grad_norm",
            "Megatron's place; FSDP's is grad_clip",
            rule="grad_norm",
        ),
        *mapped("optimizer optimizer_impl", f"{to}.strategy", "AdamW; others are not here", rule="optimizer"),
        *mapped(
            "override_optimizer_config.optimizer_cpu_offload override_optimizer_config.optimizer_offload_fraction",
            f"worker.{part}.offload.offload_optimizer",
            "any fraction above 0 moves the whole state",
            rule="offload",
        ),
        *harmless(
            "override_optimizer_config override_optimizer_config.* use_precision_aware_optimizer main_grads_dtype "
            "exp_avg_dtype exp_avg_sq_dtype use_layer_wise_distributed_optimizer muon_* zero_indexed_step",
            "how the state of the optimizer is laid out there",
        ),
    ]


def sharding_rows(part: str) -> list[Row]:
    """Rows below `fsdp_config`."""
    to = f"worker.{part}"
    return [
        *renamed({"param_offload": f"{to}.offload.offload_params"}, given=True),
        *(
            renamed({"optimizer_offload": f"{to}.offload.offload_optimizer"}, given=True)
            if part != "ref"
            else harmless("optimizer_offload", "the reference has no optimizer")
        ),
        *harmless("grad_offload", "gradients do not outlive an update here"),
        *mapped("fsdp_size", f"{to}.fsdp.fsdp_size", "-1 where it is all devices or one", rule="fsdp_size"),
        *mapped("model_dtype", f"{to}.fsdp.torch_dtype", "fp32 by default there; ours on a GPU is bf16", rule="dtype"),
        *mapped("offload_policy", f"{to}.fsdp.enable_cpu_offload", given=True),
        *mapped("reshard_after_forward", f"{to}.fsdp.enable_full_shard", given=True),
        *mapped("mixed_precision.param_dtype dtype", f"{to}.fsdp.mp_param_dtype", value="dtype", given=True),
        *mapped("mixed_precision.reduce_dtype", f"{to}.fsdp.mp_reduce_dtype", value="dtype", given=True),
        *mapped("mixed_precision.buffer_dtype", f"{to}.fsdp.mp_buffer_dtype", value="dtype", given=True),
        *harmless("ulysses_sequence_parallel_size", "follows the key of the same name above it"),
        *absent("full_determinism", "runs repeat bit for bit with the same seeds; leave it out", (False, True)),
        *harmless(
            "wrap_policy.* forward_prefetch use_orig_params seed entropy_* use_torch_compile forward_only strategy "
            "use_dynamic_bsz max_token_len_per_gpu micro_batch_size_per_gpu infer_* use_fused_kernels "
            "use_remove_padding mixed_precision min_num_params use_no_sync_for_gradient_accumulation pad_to_length* "
            "turbo_config.* cpu_offload offload_params",
            "how FSDP is set up there: no numbers depend on it",
        ),
        *absent("qat.enable", "quantization-aware training is not here; set it to False"),
        *harmless("qat.*", "counts only with qat.enable"),
    ]


def _loss_rows(to: str) -> list[Row]:
    """Rows of the policy loss below `actor_rollout_ref.actor`."""
    return [
        *mapped(
            "clip_ratio clip_ratio_low clip_ratio_high",
            f"{to}.clip_ratio_low {to}.clip_ratio_high",
            "0.2 and 0.2 where the command is silent; clip_ratio stands in for one that is null",
            rule="clip",
        ),
        *mapped("clip_ratio_c", f"{to}.clip_ratio_dual", rule="clip"),
        *renamed({"tau_pos": f"{to}.tau_positive", "tau_neg": f"{to}.tau_negative"}),
        *mapped("loss_agg_mode", f"{to}.loss_avg_mode"),
        *absent("loss_scale_factor", "seq-mean-token-sum-norm divides by data.max_response_length here; leave it null"),
        *renamed({"entropy_coeff": f"{to}.entropy_coeff"}),
        *under(
            "policy_loss",
            mapped("loss_mode", f"{to}.loss_type", "vanilla = default", value="loss_type"),
            renamed(
                {
                    name: f"{to}.{name}"
                    for name in ("clip_cov_ratio", "clip_cov_lb", "clip_cov_ub", "kl_cov_ratio", "ppo_kl_coef")
                }
            ),
            mapped("dro_beta", f"{to}.dro_beta"),
            absent("rollout_correction.*", "set algorithm.rollout_correction"),
        ),
        *mapped(
            "use_kl_loss kl_loss_coef kl_loss_type",
            "algorithm.use_kl_loss algorithm.kl_coef algorithm.kl_penalty",
            "two switches there decide which coefficient counts",
            rule="kl",
        ),
    ]


def actor_rows() -> list[Row]:
    """Rows below `actor_rollout_ref.actor`."""
    to = "worker.actor"
    return [
        *mapped("strategy", f"{to}.strategy", "fsdp2 and megatron are fsdp here: shards are FSDP2's", rule="strategy"),
        *renamed({"ppo_mini_batch_size": f"{to}.global_batch_size", "ppo_epochs": f"{to}.ppo_epochs"}),
        *mapped(
            "ppo_micro_batch_size_per_gpu ppo_micro_batch_size use_dynamic_bsz ppo_max_token_len_per_gpu",
            f"{to}.micro_batch_size_per_device_for_update {to}.dynamic_batching {to}.micro_batch_tokens",
            "memory only here: sizes are lowered to what divides, and raised to hold one sample",
            rule="micro_batches",
        ),
        *harmless("ppo_infer_micro_batch_size_per_gpu ppo_infer_max_token_len_per_gpu", _PASS),
        *_loss_rows(to),
        *mapped("grad_clip", f"{to}.max_grad_norm", rule="grad_norm"),
        *mapped("ulysses_sequence_parallel_size", f"{to}.ulysses_size", rule="sequence_parallel"),
        *mapped("freeze_vision_tower", f"{to}.model.freeze_vision_tower"),
        *under(
            "adaptive_entropy",
            renamed(
                {
                    name: f"{to}.adaptive_entropy.{name}"
                    for name in ("enabled", "target_entropy", "max_ent_coef", "min_ent_coef", "delta_ent_coef")
                }
            ),
        ),
        *mapped(
            "use_rollout_log_probs",
            f"{to}.recompute_old_log_probs",
            "true = the sampler's log-probs are the old ones",
            rule="old_log_probs",
        ),
        *mapped(
            "checkpoint.save_contents",
            "trainer.save_model_only",
            "without optimizer = true; a Hugging Face folder is always written here",
            rule="save_contents",
        ),
        *harmless("checkpoint.*", "how checkpoints are written there; whet's are atomic and hold everything"),
        *absent("router_replay.mode", ROUTING, ("disabled", "R3")),
        *harmless("router_replay.*", "counts only with router_replay.mode"),
        *absent("shuffle", "mini-batches are taken in the order of the prompts; set it to False", (False,)),
        *absent("qat.enable", "quantization-aware training is not here; set it to False"),
        *harmless(
            "rollout_n use_torch_compile use_prefix_grouper calculate_entropy use_fused_kernels use_remove_padding "
            "entropy_* calculate_sum_pi_squared sum_pi_squared_checkpointing data_loader_seed pad_to_length* qat.* "
            "load_weight nccl_timeout mtp.* profile.*",
            _KERNELS,
        ),
        *under("optim", optim_rows("actor")),
        *under("fsdp_config", sharding_rows("actor")),
        *under("megatron", megatron_rows("actor")),
    ]


def ref_rows() -> list[Row]:
    """Rows below `actor_rollout_ref.ref`."""
    return [
        *under("fsdp_config", sharding_rows("ref")),
        *under("megatron", megatron_rows("ref")),
        *absent("model.path", "the reference is the actor's model before training"),
        *absent("router_replay.mode", ROUTING, ("disabled", "R3")),
        *harmless("log_prob_*", _PASS),
        *harmless("*", FOLLOWS, closed=True),
    ]


def critic_rows() -> list[Row]:
    """Rows below `critic`; they count only where the estimator needs values."""
    to = "worker.critic"
    return [
        *mapped("strategy", f"{to}.strategy", "fsdp2 and megatron are fsdp here", rule="strategy"),
        *absent("enable", "a critic is trained where the estimator needs values, as gae does; leave it null", (False,)),
        *mapped("ppo_mini_batch_size", f"{to}.global_batch_size", "prompts; in OR1 samples", rule="critic_batch"),
        *renamed({"ppo_epochs": f"{to}.ppo_epochs", "cliprange_value": f"{to}.cliprange_value"}),
        *mapped("loss_agg_mode", f"{to}.loss_avg_mode"),
        *absent("loss_scale_factor", "seq-mean-token-sum-norm divides by data.max_response_length here; leave it null"),
        *mapped(
            "ppo_micro_batch_size_per_gpu ppo_micro_batch_size use_dynamic_bsz ppo_max_token_len_per_gpu",
            f"{to}.micro_batch_size_per_device_for_update {to}.dynamic_batching {to}.micro_batch_tokens",
            "memory only here",
            rule="micro_batches",
        ),
        *harmless("forward_* ppo_infer_*", _PASS),
        *mapped("grad_clip", f"{to}.max_grad_norm", rule="grad_norm"),
        *mapped("ulysses_sequence_parallel_size", f"{to}.ulysses_size", rule="sequence_parallel"),
        *absent("shuffle", "mini-batches are taken in the order of the prompts; set it to False", (False,)),
        *under("optim", optim_rows("critic")),
        *under("model", under("fsdp_config", sharding_rows("critic")), model_rows("critic")),
        *under("megatron", megatron_rows("critic")),
        *harmless(
            "checkpoint.* rollout_n data_loader_seed nccl_timeout load_weight kl_ctrl.*", "no numbers depend on it"
        ),
    ]
