"""Sampling speed on a CPU: whet's native engine against `model.generate` of transformers, in one run.

16 word problems × 4 samples of mixed lengths on SmolLM2-135M, fp32, temperature 1. Only tokens that belong to a
response count (useful tokens): `generate` keeps stepping finished rows until the longest is done. Rounds alternate,
because timings on a shared machine drift.

    python bench/rollout_cpu.py [--model FOLDER] [--rounds 2] [--max-tokens 256]
"""

from __future__ import annotations

import argparse
import time

import torch
from prompts import problems
from transformers import AutoModelForCausalLM

from whet.assets import resolve_model
from whet.model.load import end_ids, load_model, load_tokenizer
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.engine import NativeEngine
from whet.types import Prompt


def main() -> None:
    arguments = _arguments()
    path = resolve_model(arguments.model, print)
    tokenizer = load_tokenizer(path)
    chats = [[{"role": "user", "content": text}] for text in problems(16)]
    ids = tokenizer.apply_chat_template(chats, add_generation_prompt=True, return_dict=False)
    prompts = [Prompt(str(i), row, "") for i, row in enumerate(ids)]
    ends = end_ids(path, tokenizer)
    engine = NativeEngine(load_model(path), tokenizer, ends, max_num_seqs=64)
    reference = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()

    def native(max_tokens: int, seed: int) -> int:
        samples = engine.generate(prompts, SamplingParams(n=4, max_tokens=max_tokens, seed=seed))
        return sum(len(s.ids) for s in samples)

    def generate(max_tokens: int, seed: int) -> int:
        torch.manual_seed(seed)
        batch = tokenizer.pad({"input_ids": [p.ids for p in prompts]}, padding_side="left", return_tensors="pt")
        width = batch["input_ids"].shape[1]
        out = reference.generate(**batch, do_sample=True, top_k=0, num_return_sequences=4, max_new_tokens=max_tokens)[
            :, width:
        ]
        ended = torch.isin(out, torch.tensor(sorted(ends))).cumsum(dim=1)
        useful = (ended == 0) | ((ended == 1) & torch.isin(out, torch.tensor(sorted(ends))))  # up to the first end
        return int(useful.sum())

    native(4, 0), generate(4, 0)  # warm up
    rates: dict[str, list[float]] = {"generate": [], "whet native": []}
    for seed in range(arguments.rounds):
        for name, sample in (("generate", generate), ("whet native", native)):
            start = time.perf_counter()
            tokens = sample(arguments.max_tokens, seed)
            seconds = time.perf_counter() - start
            rates[name].append(tokens / seconds)
            print(f"round {seed}  {name:<12} {tokens:6d} useful tokens  {seconds:6.1f} s  {tokens / seconds:6.1f}/s")
    best = {name: max(values) for name, values in rates.items()}
    print(f"best: whet {best['whet native']:.0f}, generate {best['generate']:.0f} useful tokens/s: "
          f"{best['whet native'] / best['generate']:.2f}x")  # fmt: skip


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="whet/smollm2")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--max-tokens", type=int, default=256)
    return parser.parse_args()


if __name__ == "__main__":
    main()
