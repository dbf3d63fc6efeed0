"""Rows of main_generation and main_eval, of verl and of Skywork-OR1."""

from __future__ import annotations

from whet.compat.keys.row import Table, absent, harmless, mapped, renamed, under

_ENGINE = "how the engine is run there"

GENERATION = Table(
    mapped("data.path", "generate.files", value="files"),
    mapped("data.output_path", "generate.output", "Parquet with a column of lists, `responses`", rule="output"),
    renamed({"data.n_samples": "worker.rollout.n", "data.prompt_key": "data.prompt_key"}),
    harmless("data.batch_size", "prompts are sampled as the engine has room"),
    harmless("data.response_key data.data_source_key data.reward_model_key", "names of columns for main_eval"),
    under(
        "model",
        mapped("path", "worker.actor.model.model_path", value="path"),
        mapped("trust_remote_code", "worker.actor.model.trust_remote_code"),
        absent("external_lib", "no Python module is imported for the model"),
    ),
    under(
        "rollout",
        mapped(
            "name tensor_model_parallel_size dtype max_model_len",
            "worker.rollout.name worker.rollout.tensor_parallel_size",
            rule="generation_engine",
        ),
        renamed({"prompt_length": "data.max_prompt_length", "response_length": "data.max_response_length"}),
        renamed({name: f"worker.rollout.{name}" for name in ("temperature", "top_p", "ignore_eos")}),
        mapped("top_k", "worker.rollout.top_k", "0 = -1", value="top_k"),
        mapped("seed", "worker.rollout.seed", given=True),
        renamed(
            {
                name: f"worker.rollout.{name}"
                for name in (
                    "gpu_memory_utilization",
                    "enforce_eager",
                    "enable_chunked_prefill",
                    "max_num_batched_tokens",
                    "max_num_seqs",
                    "disable_log_stats",
                )
            },
            given=True,
        ),
        harmless("n", "data.n_samples counts"),
        harmless("*", _ENGINE),
    ),
    harmless(
        "trainer.nnodes trainer.n_gpus_per_node", "one process samples, on one device or on vLLM's tensor_parallel_size"
    ),
    mapped("trainer.device", "trainer.device", rule="device"),
    harmless("actor.* ray_kwargs* ray_init.* hydra.* trainer.*", "how its processes are run there"),
)

EVAL = Table(
    mapped("data.path", "eval.responses data.val_files", "the file with the responses", rule="scored_file"),
    mapped("data.response_key", "eval.response_key"),
    renamed({"data.prompt_key": "data.prompt_key"}),
    mapped("data.data_source_key", "", "data_source", rule="eval_columns"),
    mapped("data.reward_model_key", "data.answer_key", "its field ground_truth", rule="eval_columns"),
    mapped(
        "custom_reward_function.path custom_reward_function.name", "worker.reward.reward_function", rule="eval_reward"
    ),
    mapped(
        "custom_reward_function.reward_kwargs custom_reward_function.reward_kwargs.*",
        "worker.reward.reward_function_kwargs",
        rule="eval_reward",
    ),
    harmless("ray_kwargs* ray_init.* hydra.*", "how its processes are run there"),
)
