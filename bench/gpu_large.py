"""Whole GRPO steps of large models on one GPU: sampling, advantages, update, with random weights made on the device.

A shape of public sizes is built on the device, so that nothing is downloaded or read. Response lengths are geometric,
because a set of token ids ends a response (see rollout_tail.py). The first round compiles kernels on a few prompts and
does not count. Every round is written as one line of JSON, and everything to --out.

    python bench/gpu_large.py step-7b               # 64 prompts x 8, up to 512 tokens, all weights trained
    python bench/gpu_large.py step-7b-kl            # the same with a reference, which waits in host memory
    python bench/gpu_large.py update-8b-16k         # samples of 16,000 tokens, the update alone
    python bench/gpu_large.py update-8b-16k update-8b-40k --set worker.actor.model.enable_activation_offload=true
    python bench/gpu_large.py step-32b-lora         # 32 prompts x 8, up to 256 tokens, adapters of rank 16
    python bench/gpu_large.py step-7b-fp8           # sampled with weights in 8 bits
    python bench/gpu_large.py step-moe              # 8 layers of a mixture of experts, routing replayed
    python bench/gpu_large.py tiny tiny-lora        # the same lines on a CPU, in seconds
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gpu_shapes import (
    PEAK_FLOPS,
    Shape,
    llama_135m,
    qwen2_5_7b,
    qwen3_1_7b,
    qwen3_8b,
    qwen3_30b_a3b,
    qwen3_32b,
    qwen3_moe_tiny,
    qwen3_tiny,
)
from rollout_tail import NoText, build_model, ends_of
from transformers import PretrainedConfig

from whet.config import Config, load_config
from whet.learn.learner import LocalLearner
from whet.learn.reference import LocalReference
from whet.rollout.engine import Engine, SamplingParams
from whet.rollout.spec import Opening, open_engine
from whet.training import parts
from whet.training.experience import make_experience, needs_reference, sampler_log_probs
from whet.training.objective import objective
from whet.training.policy import attach_reference
from whet.types import Prompt, Sample


@dataclass(frozen=True, slots=True)
class Workload:
    """A model's shape, and what is sampled from it and trained on."""

    shape: Callable[[], PretrainedConfig]
    prompts: int
    samples: int  # a prompt
    max_tokens: int
    mean: int  # of the geometric distribution of lengths, before `max_tokens` cuts it
    prompt_tokens: tuple[int, int] = (100, 200)
    sampled: bool = True  # False: responses of `max_tokens` random tokens, nothing is sampled
    warm: int = 4  # prompts of the round that does not count
    keys: dict[str, Any] = field(default_factory=dict)


_LORA = {"worker.actor.model.lora.rank": 16, "worker.actor.model.lora.alpha": 32}
_TINY = {"prompt_tokens": (3, 12), "warm": 1, "keys": {"trainer.device": "cpu"}}
_FP8 = {"worker.rollout.quantization": "fp8", "algorithm.rollout_correction": "decoupled_token_is"}
_REPLAY = {"worker.rollout.replay_routing": "true"}
_KL = {"algorithm.disable_kl": "false", "algorithm.use_kl_loss": "true"}
WORKLOADS = {
    "step-135m": Workload(llama_135m, 64, 8, 512, 520, warm=64),
    "step-1.7b": Workload(qwen3_1_7b, 64, 8, 1024, 700),
    "step-7b": Workload(qwen2_5_7b, 64, 8, 512, 520),
    "step-7b-kl": Workload(qwen2_5_7b, 64, 8, 512, 520, keys=_KL),
    "step-32b-lora": Workload(qwen3_32b, 32, 8, 256, 260, keys=_LORA),
    "step-7b-fp8": Workload(qwen2_5_7b, 64, 8, 512, 520, keys=_FP8),
    "step-moe": Workload(partial(qwen3_30b_a3b, 8), 64, 8, 512, 520, keys=_REPLAY),
    "update-8b-16k": Workload(qwen3_8b, 2, 2, 16000, 0, sampled=False, warm=1),
    "update-8b-40k": Workload(qwen3_8b, 1, 2, 40000, 0, sampled=False, warm=1),  # fits with offloaded activations
    "tiny": Workload(qwen3_tiny, 3, 2, 16, 12, **_TINY),
    "tiny-lora": Workload(qwen3_tiny, 3, 2, 16, 12, **(_TINY | {"keys": _TINY["keys"] | _LORA})),
    "tiny-kl": Workload(qwen3_tiny, 3, 2, 16, 12, **(_TINY | {"keys": _TINY["keys"] | _KL})),
    "tiny-fp8": Workload(qwen3_tiny, 3, 2, 16, 12, **(_TINY | {"keys": _TINY["keys"] | _FP8})),
    "tiny-moe": Workload(qwen3_moe_tiny, 3, 2, 16, 12, **(_TINY | {"keys": _TINY["keys"] | _REPLAY})),
}


class Bench:
    """A model with its engine and learner, opened as a training run opens them."""

    def __init__(self, workload: Workload, keys: list[str]) -> None:
        self.workload = workload
        self.config = _config(workload, keys)
        device = "cpu" if self.config.trainer.device == "cpu" else "cuda"
        self.model = build_model(workload.shape(), device)
        if self.config.worker.actor.model.lora.rank:
            from whet.model.lora import add_adapters

            add_adapters(self.model, self.config.worker.actor.model.lora, "random", 0)
        else:
            self.model.requires_grad_(True)
        self.engine: Engine | None = None
        if workload.sampled:
            ends = ends_of(self.model.config.vocab_size, workload.mean)
            self.engine = open_engine(Opening(self.config, self.model, NoText(), ends))  # type: ignore[arg-type]
        self.learner: LocalLearner = parts.open_learner(self.config, self.model, total_steps=100)
        self.reference: LocalReference | None = None
        if needs_reference(self.config.algorithm) and not self.config.worker.actor.model.lora.rank:
            self.reference = attach_reference(self.config, build_model(workload.shape(), device), self.learner)
        self.device = device
        rng = random.Random(1)
        self.prompts = [
            Prompt(str(i), [rng.randrange(3, self.model.config.vocab_size) for _ in range(length)], "")
            for i, length in enumerate(rng.randint(*workload.prompt_tokens) for _ in range(workload.prompts))
        ]

    def round(self, step: int, prompts: list[Prompt]) -> dict[str, Any]:
        """Take one step on these prompts; seconds of its stages, tokens, rates."""
        begin = self._now()
        samples = self._sample(prompts, step)
        sampled = self._now()
        for i, sample in enumerate(samples):
            sample.group, sample.scores = i // self.workload.samples, {"overall": random.Random(i).random()}
        reference = None if self.reference is None else self.reference.log_probs(samples)
        scored = self._now()
        experience, _ = make_experience(samples, sampler_log_probs(samples), reference, self.config.algorithm)
        version = self.engine.version if self.engine is not None else None
        metrics = self.learner.update(samples, objective(experience, self.config), step, len(samples), None, version)
        updated = self._now()
        if self.engine is not None:
            with self.learner.engine_weights() as weights:
                self.engine.load_weights(weights, self.engine.version + 1)
        n = self.workload.samples
        groups = [
            (len(samples[i].prompt.ids), [len(s.ids) for s in samples[i : i + n]]) for i in range(0, len(samples), n)
        ]
        flops = Shape.of_config(self.model.config).training_flops(groups)
        if self.config.worker.actor.model.lora.rank:
            flops *= 2 / 3  # no gradients of the base weights
        written = sum(len(s.ids) for s in samples)
        return {
            "rollout_s": sampled - begin,
            "scoring_s": scored - sampled,
            "update_s": updated - scored,
            "tokens": written,
            "rollout_tokens_per_s": written / (sampled - begin) if self.engine is not None else None,
            "packed_tokens": sum(p + sum(r) for p, r in groups),
            "mfu": flops / (updated - scored) / PEAK_FLOPS,
            "metrics": {k: v for k, v in metrics.items() if "log_prob_diff" in k or k == "actor/grad_norm"},
        }

    def _sample(self, prompts: list[Prompt], step: int) -> list[Sample]:
        workload = self.workload
        if self.engine is None:
            rng, most = random.Random(step), self.model.config.vocab_size
            ids = [[rng.randrange(3, most) for _ in range(workload.max_tokens)] for _ in range(workload.samples)]
            return [
                Sample.written(prompt, each, [-12.0] * len(each), "length", index=i)
                for prompt in prompts
                for i, each in enumerate(ids)
            ]
        samples = self.engine.generate(
            prompts, SamplingParams(n=workload.samples, max_tokens=workload.max_tokens, seed=step)
        )
        self.engine.release()
        return samples

    def _now(self) -> float:
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()


def _config(workload: Workload, keys: list[str]) -> Config:
    values = {
        "worker.actor.model.model_path": "whet/quickstart",  # a name that a config must have; it is not opened
        "data.train_files": "none",
        "data.max_prompt_length": workload.prompt_tokens[1],
        "data.max_response_length": workload.max_tokens,
        "data.rollout_batch_size": workload.prompts,
        "worker.actor.global_batch_size": workload.prompts,
        "worker.rollout.n": workload.samples,
        "worker.rollout.max_num_seqs": min(512, workload.prompts * workload.samples),
        "worker.reward.reward_function": "none.py:none",
        "algorithm.disable_kl": "true",
        "trainer.device": "cuda",
    }
    return load_config([f"{name}={value}" for name, value in (values | workload.keys).items()] + keys)


def measure(name: str, rounds: int, keys: list[str], profile: Path | None) -> dict[str, Any]:
    """Open a workload, warm up and take its rounds."""
    began, workload = time.perf_counter(), WORKLOADS[name]
    bench = Bench(workload, keys)
    result: dict[str, Any] = {
        "workload": name,
        "keys": keys,
        "ready_s": time.perf_counter() - began,
        "parameters": sum(p.numel() for p in bench.model.parameters()),
        "budget": str(bench.learner._budget),
    }
    warm = bench.round(1, bench.prompts[: workload.warm])
    result |= {"first_s": sum(warm[f"{part}_s"] for part in ("rollout", "scoring", "update")), "rounds": []}
    for step in range(2, rounds + 2):
        result["rounds"].append(bench.round(step, bench.prompts))
        print(json.dumps({"workload": name, **result["rounds"][-1]}), flush=True)
    if bench.device == "cuda":
        result["torch_peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
        result["reserved_peak_gib"] = torch.cuda.max_memory_reserved() / 2**30
        free, total = torch.cuda.mem_get_info()
        result["device_used_gib"] = (total - free) / 2**30
        result["gpu"] = torch.cuda.get_device_name()
    if profile is not None:
        _profile(bench, workload, profile / f"{name}_profile.txt")
    return result


def _profile(bench: Bench, workload: Workload, file: Path) -> None:
    """Write the kernels of one more update, on the prompts of the warm-up."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        bench.round(99, bench.prompts[: workload.warm])
    file.write_text(
        profiler.key_averages().table(sort_by="self_device_time_total", row_limit=40, max_name_column_width=90)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="+", choices=WORKLOADS)
    parser.add_argument("--rounds", type=int, default=1, help="rounds that count")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="further keys of whet's config")
    parser.add_argument("--profile", type=Path, metavar="FOLDER", help="write a table of kernels there")
    parser.add_argument("--out", type=Path, help="a file for the results as JSON")
    arguments = parser.parse_args()
    results = []
    for name in arguments.workloads:
        try:
            results.append(measure(name, arguments.rounds, arguments.set, arguments.profile))
        except (torch.OutOfMemoryError, RuntimeError) as error:
            results.append({"workload": name, "error": f"{type(error).__name__}: {error}"[:2000]})
        print(json.dumps(results[-1]), flush=True)
        if arguments.out is not None:
            arguments.out.write_text(json.dumps(results, indent=1))
        gc.collect()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
