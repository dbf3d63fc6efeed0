"""Rows of EasyR1 and VPPO-RL: whet's config tree is EasyR1's, so that most keys are the same."""

from __future__ import annotations

from whet.compat.keys.row import Row, Table, absent, harmless, mapped, renamed
from whet.compat.trees import tree
from whet.config.loading.replaced import DERIVED
from whet.config.schema import all_keys

# Speed and memory, and keys that are given a value by dataclasses there though nobody chose it.
_GIVEN = (
    "worker.*.offload.*",
    "worker.*.model.enable_gradient_checkpointing",
    "worker.*.model.trust_remote_code",
    "worker.reward.num_cpus",
    "worker.rollout.gpu_memory_utilization",
    "worker.rollout.enforce_eager",
    "worker.rollout.enable_chunked_prefill",
    "worker.rollout.max_num_batched_tokens",
)
_LEARNERS = ("actor", "critic")
_SAME_PLACE = "read by nobody there: the key of the same name in algorithm counts"


def _older() -> list[Row]:
    """Rows of keys that earlier versions had under other names."""
    offloads = {
        f"worker.{part}.{section}.{name}_offload": f"worker.{part}.offload.offload_{ours}"
        for part in ("actor", "critic", "ref")
        for section in ("fsdp", "offload")
        for name, ours in (("param", "params"), ("optimizer", "optimizer"))
    }
    sizes = {f"worker.{part}.ulysses_sequence_parallel_size": f"worker.{part}.ulysses_size" for part in _LEARNERS}
    warmups = {
        f"worker.{part}.optim.lr_warmup_steps_ratio": f"worker.{part}.optim.lr_warmup_ratio" for part in _LEARNERS
    }
    others = {
        "worker.actor.entropy_coeff": "worker.actor.entropy_coeff",
        "trainer.total_episodes": "trainer.total_epochs",
        "trainer.val_generations_to_log_to_wandb": "trainer.val_generations_to_log",
        "worker.rollout.max_num_seqs": "worker.rollout.max_num_seqs",
    }
    return [
        *renamed(offloads | sizes | warmups | others, given=True),
        *mapped("trainer.test_freq", "trainer.val_freq", "0 = -1", value="frequency", given=True),
        *mapped(
            "worker.actor.clip_ratio", "worker.actor.clip_ratio_low worker.actor.clip_ratio_high", "both", given=True
        ),
        *mapped(
            "worker.actor.kl_loss_coef worker.actor.kl_loss_type worker.actor.use_kl_loss",
            "algorithm.use_kl_loss algorithm.kl_coef algorithm.kl_penalty",
            "count where a file or command gives kl_loss_coef or kl_loss_type",
            rule="kl_of_actor",
        ),
        *mapped(
            "worker.reward.reward_type worker.reward.score_function worker.reward.score_function_kwargs",
            "worker.reward.reward_type worker.reward.reward_function worker.reward.reward_function_kwargs",
            "function is a function of one sample",
            rule="older_reward",
        ),
        *mapped("trainer.remove_previous_ckpt", "trainer.save_limit", "true = 1", rule="older_saves"),
        *absent(
            "worker.reward.compute_score",
            "that version's own scorers are not here: set worker.reward.reward_function, to a scorer of whet's or "
            "FILE.py:FUNCTION",
        ),
        *absent(
            "data.system_prompt", "prompts have no system message of their own: write one into the data's messages"
        ),
        *harmless("data.return_raw_input_ids data.return_raw_prompt", "every column of a row is kept here"),
        *harmless(
            "trainer.del_local_ckpt_after_load trainer.remove_ckpt_after_load",
            "a checkpoint stays until save_limit removes it",
        ),
        *harmless("trainer.report_kl worker.ref.ulysses_sequence_parallel_size", "follow the actor's keys"),
        *harmless("worker.rollout.do_sample", "sampling follows the temperature; 0 is greedy"),
        *harmless("worker.rollout.free_cache_engine", "whet's sampler has no second copy of the weights"),
    ]


_SPECIAL: list[Row] = [
    *harmless("worker.*.use_torch_compile", "nothing is compiled here, and nothing depends on it"),
    *harmless("worker.*.padding_free", "samples are always packed"),
    *harmless("worker.actor.strategy worker.critic.strategy worker.ref.strategy", "shards are FSDP2's"),
    *harmless("worker.*.fsdp.use_orig_params worker.*.fsdp.enable_rank0_init", "how FSDP is set up there"),
    *harmless("worker.rollout.disable_tqdm", "engines draw no bar of their own here"),
    *harmless("trainer.ray_timeline", "no timeline is written here"),
    *harmless("worker.critic.model.tokenizer_path", "the critic reads the actor's tokens"),
    *mapped(
        "worker.rollout.name worker.rollout.tensor_parallel_size worker.rollout.dtype worker.rollout.max_model_len",
        "worker.rollout.name worker.rollout.tensor_parallel_size",
        "native, which samples with the learner's weights; vllm where it is installed",
        rule="engine_easyr1",
    ),
    *mapped(
        "algorithm.disable_kl algorithm.use_kl_loss",
        "algorithm.disable_kl algorithm.use_kl_loss",
        "disable_kl wins over use_kl_loss",
        rule="kl_easyr1",
    ),
    *mapped(
        "worker.actor.micro_batch_size_per_device_for_update worker.actor.micro_batch_size_per_device_for_experience "
        "worker.critic.micro_batch_size_per_device_for_update worker.critic.micro_batch_size_per_device_for_experience",
        "",
        "memory only: lowered to what divides where batches are counted in samples",
        rule="micro_batches_easyr1",
    ),
    *mapped(
        "worker.actor.fsdp.torch_dtype worker.critic.fsdp.torch_dtype", "", "null = fp32 there", rule="fp32_easyr1"
    ),
    *mapped("worker.ref.fsdp.torch_dtype", "worker.ref.fsdp.torch_dtype"),
    *mapped(
        "worker.actor.fsdp.fsdp_size worker.critic.fsdp.fsdp_size worker.ref.fsdp.fsdp_size",
        "",
        rule="fsdp_size_easyr1",
    ),
    *mapped("trainer.logger", "trainer.logger", value="loggers"),
    *mapped("trainer.critic_warmup", "trainer.critic_warmup", "N means N - 1 steps there", value="one_less"),
    *mapped(
        "worker.rollout.val_override_config worker.rollout.val_override_config.*",
        "worker.rollout.val_override_config",
        rule="validation_easyr1",
    ),
    *mapped(
        "worker.actor.model.override_config worker.actor.model.override_config.*",
        "worker.actor.model.override_config",
        rule="mappings_easyr1",
    ),
    *mapped(
        "worker.reward.reward_function_kwargs worker.reward.reward_function_kwargs.*",
        "worker.reward.reward_function_kwargs",
        rule="mappings_easyr1",
    ),
    *harmless("worker.critic.model.override_config*", "as the actor's"),
    *mapped("trainer.val_freq trainer.save_freq", "", "0 = -1", rule="frequencies_easyr1"),
    *harmless("worker.*.optim.warmup_style", "read by nobody there"),
    *_older(),
    *harmless("worker.*.optim.training_steps worker.*.global_batch_size_per_device", "set at run time there"),
]


def _table(*trees: str) -> Table:
    keys = [key for name in trees for key in tree(name)]
    special = Table(_SPECIAL, harmless(" ".join(DERIVED), "set at run time there, from other keys"))
    memory = Table(mapped(" ".join(_GIVEN)))
    rows = []
    for key in dict.fromkeys(keys):
        if special.find(key) is not None:
            continue
        if key in all_keys():
            rows += mapped(key, key, given=memory.find(key) is not None)
        elif key.startswith("worker.actor."):
            rows += harmless(key, _SAME_PLACE)
    return Table(special.rows, rows)


EASYR1 = _table("easyr1_main", "easyr1_config")
VPPO = _table("vppo_main", "vppo_config")
