"""vLLM's side of bench/gpu.py: the same prompts, fixed lengths, the sampled token's log-prob."""

from __future__ import annotations

import time
from typing import Any

from gpu_part import Spec, run_part, timed
from gpu_shapes import Shape
from gpu_workload import read_chats


def rollout(spec: Spec) -> dict[str, Any]:
    """Sample with vLLM's defaults; n samples as one request and as n requests, whichever is faster."""
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=spec.model,
        dtype="bfloat16",
        gpu_memory_utilization=0.5,
        max_model_len=1024,
        max_num_seqs=spec.prompts * spec.samples,
    )
    prompts = [{"prompt_token_ids": row["ids"]} for row in read_chats(spec.workload, spec.prompts)]
    ready = time.time() - spec.started

    def sample(n: int) -> int:
        params = SamplingParams(
            n=n,
            temperature=1.0,
            max_tokens=spec.new_tokens,
            ignore_eos=True,
            logprobs=0,  # the sampled token's alone
            detokenize=False,  # whet's engine does not spell either
        )
        copies = [prompt for prompt in prompts for _ in range(spec.samples // n)]
        outputs = llm.generate(copies, params, use_tqdm=False)
        return sum(len(completion.token_ids) for output in outputs for completion in output.outputs)

    # "cpu": generate returns when all is done, and a CUDA context here would be memory that vLLM did not ask for.
    first, _ = timed("cpu", lambda: sample(spec.samples))
    seconds: dict[int, list[float]] = {spec.samples: [], 1: []}
    tokens = 0
    for _ in range(spec.rounds):
        for n, taken in seconds.items():
            each, tokens = timed("cpu", lambda n=n: sample(n))
            taken.append(each)
    lengths = [len(prompt["prompt_token_ids"]) for prompt in prompts for _ in range(spec.samples)]
    return {
        "ready_s": ready,
        "first_s": first,
        "rollout_s": min(seconds.values(), key=min),
        "rollout_s_by_n": {str(n): taken for n, taken in seconds.items()},
        "tokens": tokens,
        "floor_s": Shape.of(spec.model).decode_floor(lengths, spec.new_tokens),
        "new_tokens": spec.new_tokens,
    }


if __name__ == "__main__":
    run_part({"rollout": rollout})
