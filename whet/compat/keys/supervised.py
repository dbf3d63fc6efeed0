"""Rows of the supervised trainers: verl's fsdp_sft_trainer and sft_trainer, and Skywork-OR1's fsdp_sft_trainer."""

from __future__ import annotations

from whet.compat.keys.megatron import megatron_rows
from whet.compat.keys.row import Row, Table, absent, harmless, mapped, renamed, under
from whet.compat.keys.verl import TRAINER
from whet.compat.keys.verl_models import PROFILING, model_rows, optim_rows, sharding_rows

DATA: list[Row] = [
    *mapped("train_files", "data.train_files", "a list becomes one text with commas", value="files"),
    *mapped("val_files", "data.val_files", "a list becomes one text with commas", value="files"),
    *renamed({"train_batch_size": "sft.batch_size"}),
    *mapped(
        "micro_batch_size_per_gpu use_dynamic_bsz max_token_len_per_gpu",
        "worker.actor.micro_batch_size_per_device_for_update worker.actor.micro_batch_tokens",
        "memory only",
        rule="sft_micro_batches",
    ),
    *harmless("micro_batch_size", "read by nobody there"),
    *mapped(
        "max_length",
        "data.max_prompt_length data.max_response_length",
        "the sum of both is the longest row here",
        rule="sft_length",
    ),
    *mapped("truncation", "data.filter_overlong_prompts", "error = false; rows are never cut here", rule="sft_length"),
    *mapped(
        "prompt_key response_key prompt_dict_keys response_dict_keys",
        "data.prompt_key sft.response_key",
        "a field below a column is column.field",
        rule="sft_columns",
    ),
    *mapped(
        "multiturn.enable multiturn.messages_key messages_key",
        "sft.messages_key",
        "null where chats are not enabled",
        rule="sft_columns",
    ),
    *mapped("multiturn.tools_key tools_key", "sft.tools_key"),
    *harmless("multiturn.enable_thinking_key enable_thinking_key enable_thinking_default", "the chat template decides"),
    *absent("chat_template", "set data.override_chat_template to a file"),
    *absent("custom_cls.path", "data sets by a class of yours are not here: write the rows to a file"),
    *harmless("custom_cls.name", "counts only with custom_cls.path"),
    *mapped("train_max_samples", "data.max_train_rows", "the first rows, where verl chooses at random", rule="rows"),
    *mapped("val_max_samples", "data.max_val_rows", "the first rows, where verl chooses at random", rule="rows"),
    *mapped(
        "apply_chat_template_kwargs apply_chat_template_kwargs.*", "data.chat_template_args", rule="chat_template_args"
    ),
    *absent("mm_processor_kwargs*", "arguments of the processor are not here: see data.min_pixels", ({},)),
    *harmless(
        "balance_dp_token use_shm pad_mode ignore_input_ids_mismatch num_workers image_patch_size "
        "return_multi_modal_inputs",
        "how rows are loaded there: rows are packed here",
    ),
]

SFT = Table(
    PROFILING,
    under("data", DATA),
    mapped("model.partial_pretrain", "worker.actor.model.model_path", value="path"),
    mapped("model.strategy", "worker.actor.strategy", "shards are FSDP2's", rule="strategy"),
    under("model", under("fsdp_config", sharding_rows("actor")), model_rows("actor")),
    under("optim", optim_rows("actor")),
    mapped(
        "engine.ulysses_sequence_parallel_size ulysses_sequence_parallel_size",
        "worker.actor.ulysses_size",
        rule="sft_sequence_parallel",
    ),
    harmless("engine.strategy", "shards are FSDP2's"),
    under("engine", sharding_rows("actor"), megatron_rows("actor")),
    harmless("use_remove_padding", "rows are always packed"),
    mapped("trainer.seed", "trainer.seed", value="seed"),
    mapped("trainer.max_ckpt_to_keep", "trainer.save_limit", "null = -1", value="all_if_null"),
    mapped(
        "trainer.nnodes trainer.n_gpus_per_node",
        "trainer.nnodes trainer.n_gpus_per_node",
        "torchrun decides where it starts the job",
        rule="sft_devices",
    ),
    mapped(
        "trainer.checkpoint.save_contents checkpoint.save_contents", "trainer.save_model_only", rule="save_contents"
    ),
    harmless("trainer.checkpoint.* checkpoint.*", "how checkpoints are written there"),
    absent(
        "trainer.resume_path", "set trainer.resume_mode, or name a checkpoint of whet's by trainer.load_checkpoint_path"
    ),
    under("trainer", TRAINER),
    harmless("ray_kwargs* hydra.*", "how its processes are started"),
)
