"""vLLM's side of rollout_tail.py: the same shape, prompts and end tokens, with weights that vLLM makes up.

    python bench/rollout_tail_vllm.py long-tail-1.7b --out vllm.json

Made-up weights give near-uniform logits as well, so that lengths have the same distribution.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from rollout_tail import WORKLOADS, ends_of, made_prompts

ARCHITECTURES = {"qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--memory", type=float, default=0.8, help="gpu_memory_utilization")
    parser.add_argument("--fp8", action="store_true", help="weights and activations in 8-bit floats")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    from vllm import LLM, SamplingParams

    workload, began = WORKLOADS[arguments.workload], time.perf_counter()
    config = workload.config()
    config.eos_token_id = config.bos_token_id = config.pad_token_id = None
    config.architectures = [ARCHITECTURES[config.model_type]]
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        llm = LLM(
            model=folder,
            load_format="dummy",
            skip_tokenizer_init=True,
            dtype="bfloat16",
            gpu_memory_utilization=arguments.memory,
            max_model_len=workload.prompt_tokens[1] + workload.max_tokens,
            max_num_seqs=workload.slots,
            quantization="fp8" if arguments.fp8 else None,
        )
    prompts = [{"prompt_token_ids": prompt.ids} for prompt in made_prompts(workload, config.vocab_size)]
    ends = sorted(ends_of(config.vocab_size, workload.mean))
    result: dict[str, Any] = {"workload": arguments.workload, "ready_s": time.perf_counter() - began, "rounds": []}
    for seed in range(arguments.rounds + 1):  # the first is short and does not count
        params = SamplingParams(
            n=workload.samples,
            temperature=1.0,
            max_tokens=workload.max_tokens if seed else 32,
            stop_token_ids=ends,
            logprobs=0,  # the sampled token's alone
            detokenize=False,
            seed=None,
        )
        begin = time.perf_counter()
        outputs = llm.generate(prompts, params, use_tqdm=False)
        seconds = time.perf_counter() - begin
        tokens = sum(len(each.token_ids) for output in outputs for each in output.outputs)
        if seed:
            samples = workload.prompts * workload.samples
            row = {"seconds": seconds, "tokens": tokens, "tokens_per_s": tokens / seconds, "mean": tokens / samples}
            result["rounds"].append(row)
            print(json.dumps(row), flush=True)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
