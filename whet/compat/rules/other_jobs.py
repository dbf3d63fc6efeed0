"""Rules of supervised training, generation and evaluation."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from whet.compat.rules.rule import rule
from whet.compat.rules.sampling import choose_engine, engine_size
from whet.compat.translation import Here, There


@rule("sft_columns")
def _sft_columns(there: There, here: Here) -> None:
    """Chats, or prompts and responses: a field below a column is written column.field here."""
    if "data.messages_key" in there:  # sft_trainer reads chats only
        here.set("sft.messages_key", there.get("data.messages_key", "messages"), "data.messages_key")
        return
    if there.on("data.multiturn.enable"):
        here.set(
            "sft.messages_key", there.get("data.multiturn.messages_key", "messages"), "data.multiturn.messages_key"
        )
        return
    here.idle("data.multiturn.messages_key", "counts only with multiturn.enable")
    here.set("sft.messages_key", None, "data.multiturn.enable")
    for name, ours in (("prompt", "data.prompt_key"), ("response", "sft.response_key")):
        column, fields = there.get(f"data.{name}_key"), there.get(f"data.{name}_dict_keys") or []
        fields = fields if isinstance(fields, list) else [fields]
        if len(fields) > 1:
            here.refuse(f"data.{name}_dict_keys", "one field of a column is read here; name one")
        keys = (f"data.{name}_key", f"data.{name}_dict_keys")
        here.set(ours, ".".join([str(column), *map(str, fields[:1])]), *keys)


@rule("sft_length")
def _sft_length(there: There, here: Here) -> None:
    longest = max(2, there.count("data.max_length", 1024))
    here.set("data.max_prompt_length", longest // 2, "data.max_length")
    here.set("data.max_response_length", longest - longest // 2, "data.max_length")
    truncation = there.get("data.truncation", "error")
    here.set("data.filter_overlong_prompts", False, "data.truncation")
    if truncation != "error":
        here.refuse("data.truncation", "rows are never cut here; set it to error, or max_length to what the rows need")


@rule("sft_micro_batches")
def _sft_micro_batches(there: There, here: Here) -> None:
    key = "data.micro_batch_size_per_gpu"
    if there.count(key, 0):
        here.set("worker.actor.micro_batch_size_per_device_for_update", there.count(key), key)
    if there.on("data.use_dynamic_bsz") and there.is_given("data.max_token_len_per_gpu"):
        tokens = max(there.count("data.max_token_len_per_gpu", 8192), there.count("data.max_length", 1024))
        here.set("worker.actor.micro_batch_tokens", tokens, "data.max_token_len_per_gpu")


@rule("sft_sequence_parallel")
def _sft_sequence_parallel(there: There, here: Here) -> None:
    for key in ("ulysses_sequence_parallel_size", "engine.ulysses_sequence_parallel_size"):
        if there.count(key, 1) > 1:
            here.set("worker.actor.ulysses_size", there.count(key), key)


@rule("sft_devices")
def _sft_devices(there: There, here: Here) -> None:
    here.set("trainer.nnodes", max(1, there.count("trainer.nnodes", 1)), "trainer.nnodes")
    here.set("trainer.n_gpus_per_node", max(1, there.count("trainer.n_gpus_per_node", 8)), "trainer.n_gpus_per_node")


@rule("cosine_sft")
def _cosine_sft(there: There, here: Here) -> None:
    """Skywork-OR1's SFT has a warmup and a cosine that ends at 0, and no key for it."""
    here.set("worker.actor.optim.lr_scheduler_type", "cosine", "optim.lr", given=False)


@rule("torchrun_devices")
def _torchrun_devices(there: There, here: Here) -> None:
    """Skywork-OR1's SFT has no key for devices; its scripts start eight processes."""
    if "trainer.n_gpus_per_node" not in there:
        here.set("trainer.n_gpus_per_node", 8, "trainer.n_gpus_per_node", given=False)


@rule("hdfs")
def _hdfs(there: There, here: Here) -> None:
    """A second place for checkpoints; verl's own trainer passes it on, and with FSDP nothing is written there."""
    key = "trainer.default_hdfs_dir"
    if not there.is_given(key):
        return
    if folder := there.text(key):
        here.note(f"{key}: no copy of a checkpoint is made in {folder}; all are in trainer.save_checkpoint_path")
    else:
        here.idle(key, "checkpoints are written to trainer.save_checkpoint_path")


@rule("output")
def _output(there: There, here: Here) -> None:
    """The file of samples: Parquet, which main_eval reads; Skywork-OR1 writes a pickle whatever its name."""
    name = there.get("data.output_path")
    if not name:
        return
    path = PurePath(str(name))
    if path.suffix not in (".parquet", ".jsonl"):
        here.note(f"data.output_path={name}: written as {path.with_suffix('.parquet')}, not as a pickle")
        path = path.with_suffix(".parquet")
    here.set("generate.output", str(path), "data.output_path")


@rule("generation_engine")
def _generation_engine(there: There, here: Here) -> None:
    name = choose_engine(there, here, "rollout")
    size = engine_size(there, "rollout.tensor_model_parallel_size")
    if name == "vllm" and size > 1:
        here.set("worker.rollout.tensor_parallel_size", size, "rollout.tensor_model_parallel_size")
    else:
        here.idle("rollout.tensor_model_parallel_size", "splits vLLM; whet's sampler has one device in this job")
    here.set("data.filter_overlong_prompts", False, "rollout.prompt_length", given=False)


@rule("scored_file")
def _scored_file(there: There, here: Here) -> None:
    path = there.get("data.path")
    if path:
        here.set("eval.responses", str(path), "data.path")


@rule("eval_columns")
def _eval_columns(there: There, here: Here) -> None:
    here.set(
        "data.answer_key", f"{there.get('data.reward_model_key', 'reward_model')}.ground_truth", "data.reward_model_key"
    )
    if there.get("data.data_source_key", "data_source") != "data_source":
        here.refuse(
            "data.data_source_key", "the column that chooses a scorer is data_source here; rename it in the data"
        )


@rule("eval_reward")
def _eval_reward(there: There, here: Here) -> None:
    path = there.get("custom_reward_function.path")
    if path:
        name = there.get("custom_reward_function.name", "compute_score")
        here.set("worker.reward.reward_function", f"{path}:{name}", "custom_reward_function.path")
        options: dict[str, Any] = there.below("custom_reward_function.reward_kwargs")
        if options:
            here.set("worker.reward.reward_function_kwargs", options, "custom_reward_function.reward_kwargs")
