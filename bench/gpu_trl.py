"""TRL's side of bench/gpu.py: GRPOTrainer with vLLM in the same process, one optimizer step a rollout.

TRL's own defaults but for what would slow it down here: no gradient checkpointing, no files, micro-batches as large as
fit (bench/gpu.py tries a smaller one when memory runs out). Weights are fp32 under bf16 autocast, as TRL has them.
Its correction for the sampler's log-probs is on by default and costs a forward pass; it also runs without.
"""

from __future__ import annotations

import runpy
import statistics
import time
from pathlib import Path
from typing import Any

from datasets import Dataset
from gpu_part import Spec, StepMoments, run_part
from gpu_workload import read_chats, reward_function
from trl import GRPOConfig, GRPOTrainer


class TimedTrainer(GRPOTrainer):
    """Notes how long generation takes, the copy of the weights to vLLM included."""

    generation_s: list[float]

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        value = super()._generate(*args, **kwargs)
        self.generation_s.append(time.perf_counter() - begin)
        return value


def grpo_config(cuda: bool, **own: Any) -> GRPOConfig:
    """TRL's defaults but for what would slow it down here, and a benchmark's own settings."""
    return GRPOConfig(
        learning_rate=1e-6,
        temperature=1.0,
        beta=0.0,
        use_vllm=cuda,
        vllm_mode="colocate",
        use_cpu=not cuda,
        bf16=cuda,
        gradient_checkpointing=False,
        shuffle_dataset=False,
        logging_steps=1,  # the log is where its measures are; nothing is written
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        **own,
    )


def steps(spec: Spec) -> dict[str, Any]:
    """Train for the spec's steps; its log has one entry a step."""
    moments = StepMoments()
    chats = read_chats(spec.workload, spec.prompts * spec.steps)
    dataset = Dataset.from_list([{"prompt": row["turns"], "answer": row["answer"]} for row in chats])
    cuda = spec.device == "cuda"
    score = runpy.run_path(str(reward_function(tiny=False)))["compute_score"]

    def reward(completions: list[Any], answer: list[str], **kwargs: Any) -> list[float]:
        return [
            score({"response": turns[0]["content"], "ground_truth": truth})["overall"]
            for turns, truth in zip(completions, answer)
        ]

    trainer = TimedTrainer(
        model=spec.model,
        reward_funcs=reward,
        train_dataset=dataset,
        args=grpo_config(
            cuda,
            output_dir=str(Path(spec.work) / "trl"),
            per_device_train_batch_size=spec.micro_batch,
            gradient_accumulation_steps=spec.prompts * spec.samples // spec.micro_batch,
            num_generations=spec.samples,
            max_completion_length=spec.new_tokens,
            max_steps=spec.steps,
            vllm_gpu_memory_utilization=0.3,
            vllm_max_model_length=1024,
            vllm_importance_sampling_correction=spec.correction,
        ),
    )
    trainer.generation_s = []
    trainer.train()
    log = [entry for entry in trainer.state.log_history if "num_tokens" in entry]
    counted = log[spec.warm_up :]
    tokens = [b["num_tokens"] - a["num_tokens"] for a, b in zip(log[spec.warm_up - 1 :], counted)]
    difference = "sampling/sampling_logp_difference"
    result = moments.result(spec) | {
        "stages_s": {"rollout": statistics.median(trainer.generation_s[spec.warm_up :])},
        "tokens": statistics.median(tokens),
        "response_length": statistics.median(entry["completions/mean_length"] for entry in counted),
        "micro_batch": spec.micro_batch,
    }
    if f"{difference}/mean" in counted[-1]:  # only where another engine samples
        result["log_prob_diff_mean"] = statistics.median(entry[f"{difference}/mean"] for entry in counted)
        result["log_prob_diff_max"] = max(entry[f"{difference}/max"] for entry in counted)
    return result


if __name__ == "__main__":
    run_part({"steps": steps})
