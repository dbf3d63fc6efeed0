"""TRL's side of gpu_large.py: GRPOTrainer with vLLM in its process; the shape, lengths and end tokens are the same.

    python bench/gpu_large_trl.py step-7b --work /dev/shm/trl --out trl.json
    python bench/gpu_large_trl.py tiny --work /tmp/trl      # on a CPU, without vLLM

Weights are random and written to --work, as TRL reads a folder; beside them lies a tokenizer of made-up words, one for
each id. Weights, gradients and AdamW's moments are in bf16: in fp32 under autocast, TRL's default, they do not fit on
one GPU. Activations are kept, and micro-batches are as large as then fits.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from gpu_large import WORKLOADS, Workload
from gpu_part import StepMoments
from made_words import words, write_tokenizer
from rollout_tail import ends_of
from transformers import AutoModelForCausalLM

if TYPE_CHECKING:
    from trl import GRPOConfig


def write_model(workload: Workload, folder: Path, device: str) -> int:
    """Write random weights and a tokenizer; the size of the vocabulary."""
    config = workload.shape()
    config.eos_token_id = config.bos_token_id = config.pad_token_id = None
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    write_tokenizer(folder, config.vocab_size)
    return int(config.vocab_size)


def made_rows(workload: Workload, vocabulary: int, steps: int) -> list[dict[str, str]]:
    """Prompts of random words: `gpu_large.py` takes the same number of them, of the same lengths, for each step."""
    rng, known = random.Random(1), words(vocabulary)
    lengths = [rng.randint(*workload.prompt_tokens) for _ in range(workload.prompts)]
    return [{"prompt": "".join(rng.choices(known, k=length))} for _ in range(steps) for length in lengths]


def reward(completions: list[str], **_: Any) -> list[float]:
    """A number for each text, which is the same wherever the text is."""
    return [random.Random(text).random() for text in completions]


def settings(workload: Workload, arguments: argparse.Namespace, ends: list[int], cuda: bool) -> GRPOConfig:
    """The settings of `gpu_trl.py` with lengths, end tokens and memory of a workload."""
    from gpu_trl import grpo_config

    return grpo_config(
        cuda,
        output_dir=str(arguments.work / "out"),
        model_init_kwargs={"dtype": "bfloat16" if cuda else "float32"},
        per_device_train_batch_size=arguments.micro_batch,
        gradient_accumulation_steps=workload.prompts * workload.samples // arguments.micro_batch,
        num_generations=workload.samples,
        max_completion_length=workload.max_tokens,
        max_steps=arguments.steps,
        vllm_gpu_memory_utilization=arguments.memory,
        vllm_max_model_length=workload.prompt_tokens[1] + workload.max_tokens,
        generation_kwargs={"stop_token_ids": ends} if cuda else {"eos_token_id": ends},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--work", type=Path, required=True, help="a folder for weights and what TRL writes")
    parser.add_argument("--steps", type=int, default=3, help="the first does not count")
    parser.add_argument("--micro-batch", type=int, default=4, help="samples of a forward pass")
    parser.add_argument("--memory", type=float, default=0.3, help="vLLM's gpu_memory_utilization")
    parser.add_argument("--out", type=Path, help="a file for the result as JSON")
    arguments = parser.parse_args()
    from datasets import Dataset
    from gpu_trl import TimedTrainer

    workload, began, moments = WORKLOADS[arguments.workload], time.time(), StepMoments()
    cuda = workload.keys.get("trainer.device") != "cpu"
    vocabulary = write_model(workload, arguments.work / "model", "cuda" if cuda else "cpu")
    torch.cuda.empty_cache()
    trainer = TimedTrainer(
        model=str(arguments.work / "model"),
        reward_funcs=reward,
        train_dataset=Dataset.from_list(made_rows(workload, vocabulary, arguments.steps)),
        args=settings(workload, arguments, sorted(ends_of(vocabulary, workload.mean)), cuda),
    )
    trainer.generation_s = []
    trainer.train()
    log = [entry for entry in trainer.state.log_history if "num_tokens" in entry]
    result = {
        "workload": arguments.workload,
        "first_step_s": moments.moments[0] - began,
        "step_s": [b - a for a, b in pairwise(moments.moments)],
        "rollout_s": trainer.generation_s[1:],
        "mean_length": [entry["completions/mean_length"] for entry in log],
        "log_prob_diff": [entry.get("sampling/sampling_logp_difference/mean") for entry in log],
        "torch_peak_gib": torch.cuda.max_memory_allocated() / 2**30 if cuda else None,
    }
    print(json.dumps(result), flush=True)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
