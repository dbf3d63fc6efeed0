"""Sampling with a long tail of lengths on one GPU: how many tokens a second, and how many slots are in use meanwhile.

The model has random weights of a public shape, built on the device: no network and no files. Response lengths are
geometric, because a set of token ids ends a response: with near-uniform random logits each token ends it with the share
of those ids in the vocabulary. Every round is written as one line of JSON, and a summary at the end.

    python bench/rollout_tail.py long-tail-1.7b          # 128 prompts x 8, up to 4,096 tokens, mean about 800
    python bench/rollout_tail.py rollout-7b              # 64 prompts x 8, up to 2,048 tokens, mean about 550
    python bench/rollout_tail.py long-tail-1.7b --first-request 16   # the same behind one request of 16 tokens
    python bench/rollout_tail.py moe-30b-a3b --record-routing        # a mixture of experts, 64 prompts x 8, up to 512
    python bench/rollout_tail.py rollout-8b --fp8        # weights in 8 bits
    python bench/rollout_tail.py tiny                    # the whole of it on a CPU, in seconds
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from gpu_shapes import qwen2_5_7b, qwen3_1_7b, qwen3_8b, qwen3_30b_a3b, qwen3_moe_tiny, qwen3_tiny
from transformers import PretrainedConfig, PreTrainedModel

from whet.model import attention
from whet.model.fused import decoder_of, fuse
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.engine import NativeEngine
from whet.types import Prompt


@dataclass(frozen=True, slots=True)
class Workload:
    """A model's shape, and what is sampled from it."""

    config: Callable[[], PretrainedConfig]
    prompts: int
    samples: int  # a prompt
    prompt_tokens: tuple[int, int]  # the shortest and the longest
    max_tokens: int
    mean: int  # of the geometric distribution that lengths are drawn from, before `max_tokens` cuts it
    slots: int = 512


WORKLOADS = {
    "long-tail-1.7b": Workload(qwen3_1_7b, 128, 8, (100, 200), 4096, 820),
    "rollout-7b": Workload(qwen2_5_7b, 64, 8, (100, 200), 2048, 570),
    "rollout-8b": Workload(qwen3_8b, 64, 8, (100, 200), 1024, 400),
    "moe-30b-a3b": Workload(qwen3_30b_a3b, 64, 8, (100, 200), 512, 400),
    "tiny-moe": Workload(qwen3_moe_tiny, 2, 2, (3, 9), 8, 12, slots=4),
    "tiny": Workload(qwen3_tiny, 4, 2, (3, 40), 48, 12, slots=4),
}


class NoText:
    """A tokenizer's place: without stop strings the engine never spells anything."""

    def decode(self, *_: object, **__: object) -> str:
        raise RuntimeError("this benchmark has no tokenizer")


def build_model(config: PretrainedConfig, device: str) -> PreTrainedModel:
    """Random weights in the model's own initialisation, run by fused kernels where the device has them."""
    from transformers import AutoModelForCausalLM

    config.eos_token_id = config.bos_token_id = config.pad_token_id = None
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(
            config,
            dtype=torch.bfloat16 if device == "cuda" else torch.float32,
            attn_implementation=attention.implementation(config),
        )
    model.eval().requires_grad_(False)
    fused = fuse(model)
    if device == "cuda" and not fused:
        sys.exit("the fused decoder refused this model: what would be measured is not what users get")
    return model


def ends_of(vocabulary: int, mean: int) -> frozenset[int]:
    """Ids that end a response after `mean` tokens in the mean where all tokens are about as likely."""
    count = max(1, round(vocabulary / mean))
    return frozenset(random.Random(0).sample(range(vocabulary), count))


def made_prompts(workload: Workload, vocabulary: int) -> list[Prompt]:
    """Prompts of random tokens, the same in every run."""
    rng = random.Random(1)
    return [
        Prompt(str(i), [rng.randrange(vocabulary) for _ in range(rng.randint(*workload.prompt_tokens))], "")
        for i in range(workload.prompts)
    ]


def warm_up(engine: NativeEngine, prompts: list[Prompt], slots: int) -> None:
    """Compile kernels and capture the graph of every batch size: powers of two up to 64, then multiples of 64.

    Samples of one prompt begin together; those of many are fewer at a time than the prompts that a pass reads.
    """
    engine.generate(prompts, SamplingParams(max_tokens=2, ignore_eos=True))
    for size in [1, 2, 4, 8, 16, 32, *range(64, slots + 1, 64)]:
        if size <= slots:
            engine.generate(prompts[:1], SamplingParams(n=size, max_tokens=2, ignore_eos=True))


def run_round(engine: NativeEngine, prompts: list[Prompt], params: SamplingParams, device: str) -> dict[str, Any]:
    """Sample everything once; rate, lengths, and the slots in use over time."""
    before = engine.occupancy().preemptions
    if device == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    requests = [engine.submit(prompt, params, i * params.n) for i, prompt in enumerate(prompts)]
    moments: list[tuple[float, int, int, int]] = []
    while any(request.unfinished for request in requests):
        engine.step()
        at = engine.occupancy()
        moments.append((time.perf_counter() - begin, at.running, at.pages_used, at.pages))
    if device == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    for request in requests:
        request.raise_error()
    lengths = sorted(len(sample.ids) for request in requests for sample in request.samples(0))
    return {
        "seconds": seconds,
        "tokens": sum(lengths),
        "tokens_per_s": sum(lengths) / seconds,
        "mean_length": sum(lengths) / len(lengths),
        "longest": lengths[-1],
        "cut": sum(length == params.max_tokens for length in lengths),
        "preemptions": engine.occupancy().preemptions - before,
        "most_pages": max(used for _, _, used, _ in moments),
        "cache_pages": moments[-1][3],
        "slots": _over_time([(when, running) for when, running, _, _ in moments], seconds),
        "steps": len(moments),
    }


def _over_time(moments: list[tuple[float, int]], seconds: float, points: int = 20) -> list[int]:
    """The value at evenly spaced times."""
    values, place = [], 0
    for point in range(points):
        while place + 1 < len(moments) and moments[place + 1][0] <= seconds * point / points:
            place += 1
        values.append(moments[place][1])
    return values


def main() -> None:
    arguments = _arguments()
    name, device = arguments.workload, "cpu" if arguments.workload.startswith("tiny") else "cuda"
    workload = WORKLOADS[name]
    began = time.perf_counter()
    model = build_model(workload.config(), device)
    vocabulary, slots = model.config.vocab_size, arguments.slots or workload.slots
    engine = NativeEngine(
        model,
        NoText(),  # type: ignore[arg-type]
        ends_of(vocabulary, workload.mean),
        max_num_seqs=slots,
        max_model_len=workload.prompt_tokens[1] + workload.max_tokens,
        memory_share=arguments.memory,
        speculate=arguments.speculate,
        record_routing=arguments.record_routing,
        fp8=arguments.fp8,
        fp8_cache=arguments.fp8_cache,
    )
    prompts = made_prompts(workload, vocabulary)
    ready = time.perf_counter() - began
    result: dict[str, Any] = {
        "workload": name,
        "device": device,
        "ready_s": ready,
        "fused": decoder_of(model) is not None,
    }
    if arguments.first_request:
        short = engine.generate(prompts[:1], SamplingParams(max_tokens=arguments.first_request, ignore_eos=True))
        result["first_request_tokens"] = sum(len(sample.ids) for sample in short)
    begin = time.perf_counter()
    warm_up(engine, prompts, slots)
    result["warm_up_s"] = time.perf_counter() - begin
    rounds = []
    for seed in range(arguments.rounds):
        params = SamplingParams(n=workload.samples, max_tokens=workload.max_tokens, seed=seed)
        rounds.append(run_round(engine, prompts, params, device))
        print(json.dumps({"round": seed, **rounds[-1]}), flush=True)
        released = time.perf_counter()
        engine.release()
        rounds[-1]["release_s"] = time.perf_counter() - released
    result |= {"rounds": rounds, "best_tokens_per_s": max(each["tokens_per_s"] for each in rounds)}
    result["shape"] = {key: value for key, value in asdict(workload).items() if key != "config"}
    if device == "cuda":
        result["torch_peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
        result["gpu"] = torch.cuda.get_device_name()
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(result, indent=1))
    best = max(rounds, key=lambda each: each["tokens_per_s"])
    print(
        f"{name}: {best['tokens_per_s']:,.0f} tokens/s ({best['tokens']:,} tokens in {best['seconds']:.1f} s, "
        f"mean {best['mean_length']:.0f}, {best['preemptions']} preemptions, ready after {ready:.0f} s)"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--rounds", type=int, default=2, help="times that everything is sampled")
    parser.add_argument("--slots", type=int, help="max_num_seqs")
    parser.add_argument("--memory", type=float, default=0.6, help="gpu_memory_utilization")
    parser.add_argument("--speculate", action="store_true", help="guess tokens of the last sequences")
    parser.add_argument("--fp8", action="store_true", help="weights and activations in 8-bit floats")
    parser.add_argument("--fp8-cache", action="store_true", help="keys and values in 8-bit floats")
    parser.add_argument("--record-routing", action="store_true", help="write down the experts of every token")
    parser.add_argument("--first-request", type=int, default=0, metavar="TOKENS", help="a short request goes first")
    parser.add_argument("--out", type=Path, help="a file for the result as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
