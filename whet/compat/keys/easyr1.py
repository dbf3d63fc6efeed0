"""Rows of EasyR1 and VPPO-RL: whet's config tree is EasyR1's, so that most keys are the same."""

from __future__ import annotations

from whet.compat.keys.row import Row, Table, harmless, mapped
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
_SAME_PLACE = "read by nobody there: the key of the same name in algorithm counts"
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
