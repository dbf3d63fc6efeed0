"""What each technique buys on one GPU, measured alone: the same work with it and without, in one process.

    python bench/techniques.py --out results [--data gsm8k/train.jsonl] [--model FOLDER]
    python bench/techniques.py --tiny --out results        # tiny, on a CPU, to try the script

The model is SmolLM2-135M in bf16. Two rounds that do not count, then the median of three. A row that cannot be measured
says why.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from gpu_part import Spec, timed
from gpu_shapes import write_bf16
from gpu_whet import made_up, whet_config
from gpu_workload import read_chats, write_workload
from torch import Tensor, nn
from transformers import PreTrainedModel

from whet.learn.kernel_log_probs import KernelTokenLogProbs
from whet.learn.log_probs import _TokenLogProbs
from whet.model.attention import PackedAttention, Segment, packed_attention_for
from whet.model.fused import fuse, unfuse
from whet.model.load import end_ids, head_of, load_tokenizer
from whet.rollout.engine import SamplingParams
from whet.rollout.spec import Opening, open_engine
from whet.supervised.likelihood import NegativeLogLikelihood
from whet.training import parts
from whet.training.device import choose_placement
from whet.types import Prompt, Sample

Row = tuple[str, float, float]  # technique, milliseconds without, milliseconds with


def main() -> None:
    arguments = _arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    spec = _spec(arguments)
    model = parts.load_weights(spec.model, whet_config(spec), choose_placement(whet_config(spec)))
    samples = made_up(spec)
    rows: list[dict[str, Any]] = []
    for measure in (log_prob_kernel, attention_kernel, updates, rollouts):
        try:
            for name, without, with_it in measure(spec, model, samples):
                rows.append({"technique": name, "without_ms": without, "with_ms": with_it})
                print(f"{name}: {without:.1f} -> {with_it:.1f} ms ({without / with_it:.2f}x)", flush=True)
        except Exception as error:  # the other rows are worth having
            rows.append({"technique": measure.__name__, "error": repr(error)[:500]})
            print(f"{measure.__name__}: {error!r}"[:500], flush=True)
        (arguments.out / "techniques.json").write_text(json.dumps(rows, indent=1))


def log_prob_kernel(spec: Spec, model: PreTrainedModel, samples: list[Sample]) -> Iterator[Row]:
    """Chunked log-probs and entropies, forward and backward: torch's operations and whet's kernels."""
    head, rows = head_of(model), min(spec.update_tokens, 16384)
    hidden = torch.randn(rows, head.weight_VH.shape[1], device=spec.device, dtype=head.weight_VH.dtype)
    targets = torch.randint(len(head.weight_VH), (rows,), device=spec.device)
    given = hidden.requires_grad_(), head.weight_VH, None, targets, 1.0

    def both(function: Any, last: Any) -> Callable[[], None]:
        def run() -> None:
            log_probs, _ = function.apply(*given, last)
            log_probs.sum().backward()

        return run

    plain = _milliseconds(spec, both(_TokenLogProbs, None))
    yield f"log-prob kernel ({rows} tokens)", plain, _milliseconds(spec, both(KernelTokenLogProbs, False))
    model.zero_grad()


def attention_kernel(spec: Spec, model: PreTrainedModel, samples: list[Sample]) -> Iterator[Row]:
    """One layer's attention over the whole batch, forward and backward, by the ways there are to compute it."""
    config = model.config
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    count = min(len(samples), 128)

    def time_of(segments: list[Segment], how: Any) -> float:
        tokens = sum(s.length for s in segments)
        shape = [(heads, tokens, size), (groups, tokens, size), (groups, tokens, size)]
        q, k, v = (torch.randn(s, device=spec.device, dtype=model.dtype, requires_grad=True) for s in shape)

        def run() -> None:
            how.attend(0, q, k, v, size**-0.5, None).sum().backward()

        return _milliseconds(spec, run)

    shared, copied = _segments(samples[:count], True), _segments(samples[:count], False)
    import numpy as np

    def kernel(segments: list[Segment]) -> Any:
        rows = [[s.start, s.length, s.prefix_start, s.prefix_length] for s in segments]
        return packed_attention_for(np.array(rows, dtype=np.int64), spec.device)

    with_kernel = time_of(shared, kernel(shared))
    yield "attention kernel, against padded buckets", time_of(shared, PackedAttention(shared, spec.device)), with_kernel
    yield "shared prefixes in the attention kernel", time_of(copied, kernel(copied)), with_kernel
    if spec.device == "cuda":
        yield "attention kernel, against torch's varlen_attn", time_of(copied, _Varlen(copied, spec)), with_kernel


class _Varlen:
    """torch's own attention over packed rows, which knows no shared prefixes."""

    def __init__(self, segments: list[Segment], spec: Spec) -> None:
        lengths = [0, *(s.length for s in segments)]
        self._offsets = torch.tensor(lengths, device=spec.device).cumsum(0).to(torch.int32)
        self._longest = max(lengths)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
        import inspect

        from torch.nn.attention.varlen import varlen_attn

        repeat = q.shape[0] // k.shape[0]
        query, key, value = (x.transpose(0, 1).contiguous() for x in (q, k, v))
        known = inspect.signature(varlen_attn).parameters
        keys: dict[str, Any] = {"window_size": (-1, 0)} if "window_size" in known else {"is_causal": True}
        if "enable_gqa" in known:
            keys["enable_gqa"] = True
        else:
            key, value = key.repeat_interleave(repeat, 1), value.repeat_interleave(repeat, 1)
        return varlen_attn(query, key, value, self._offsets, self._offsets, self._longest, self._longest, **keys)


def _segments(samples: list[Sample], share: bool) -> list[Segment]:
    found, total, at, last = [], 0, 0, None
    for sample in samples:
        prompt, response = len(sample.prompt.ids), len(sample.ids) - 1
        if share and sample.prompt is not last:
            found.append(Segment(total, prompt))
            at, total, last = total, total + prompt, sample.prompt
        length = response if share else prompt + response
        if length:
            found.append(Segment(total, length, at, prompt) if share else Segment(total, length))
        total += length
    return found


def updates(spec: Spec, model: PreTrainedModel, samples: list[Sample]) -> Iterator[Row]:
    """Forward, backward and optimizer step of the learner."""

    def time_of(**keys: str) -> float:
        asked = {name.replace("__", "."): value for name, value in keys.items()}
        config = whet_config(replace(spec, keys=spec.keys | asked))
        learner = parts.open_learner(config, model, total_steps=100)
        objective = NegativeLogLikelihood.of(samples, config)
        return _milliseconds(spec, lambda: learner.update(samples, objective, 1, len(samples)))

    usual = time_of()
    yield "shared prefixes in an update", time_of(worker__actor__share_prefix="false"), usual
    small = {"worker__actor__micro_batch_tokens": str(max(64, spec.update_tokens // 4))}
    yield "micro-batches four times as large", time_of(**small), usual
    recomputing = {"worker__actor__model__enable_gradient_checkpointing": "true"}
    yield "keeping activations instead of computing them again", time_of(**recomputing), usual
    if fuse(model):  # it was, where there are kernels
        unfuse(model)
        plain = time_of()
        yield "fused decoder in an update", plain, usual
        compiled = [m for m in model.modules() if m is not model and _is_small(m)]
        for module in compiled:
            module.compile(dynamic=True)
        begin = time.perf_counter()
        with_compiler = time_of()
        took = time.perf_counter() - begin
        yield f"fused decoder, against compiled MLPs and norms (measured in {took:.0f} s)", with_compiler, usual
        for module in compiled:
            module._compiled_call_impl = None
        fuse(model)


def _is_small(module: nn.Module) -> bool:
    return type(module).__name__.endswith(("MLP", "RMSNorm"))


def rollouts(spec: Spec, model: PreTrainedModel, samples: list[Sample]) -> Iterator[Row]:
    """Sampling the whole workload."""
    tokenizer = load_tokenizer(spec.model)
    ends = end_ids(spec.model, tokenizer)
    prompts = [Prompt(str(i), row["ids"], "") for i, row in enumerate(read_chats(spec.workload, spec.prompts))]

    def time_of(new_tokens: int, **keys: str) -> float:
        asked = {name.replace("__", "."): value for name, value in keys.items()}
        engine = open_engine(Opening(whet_config(replace(spec, keys=spec.keys | asked)), model, tokenizer, ends))
        params = SamplingParams(n=spec.samples, max_tokens=new_tokens, ignore_eos=True, seed=1)
        found = _milliseconds(spec, lambda: engine.generate(prompts, params), rounds=1)
        engine.release()
        engine.close()
        return found

    few = min(64, spec.new_tokens)
    usual = time_of(few)
    yield f"CUDA graphs in a rollout of {few} tokens", time_of(few, worker__rollout__enforce_eager="true"), usual


def _milliseconds(spec: Spec, call: Callable[[], Any], rounds: int = 3) -> float:
    for _ in range(min(2, rounds)):
        timed(spec.device, call)
    return 1000 * statistics.median(timed(spec.device, call)[0] for _ in range(rounds))


def _spec(arguments: argparse.Namespace) -> Spec:
    from whet.assets import resolve_model

    model = str(resolve_model("whet/quickstart" if arguments.tiny else arguments.model, print))
    device = "cpu" if arguments.tiny else "cuda"
    sizes = {"prompts": 4, "samples": 2, "new_tokens": 8, "update_tokens": 256} if arguments.tiny else {}
    work = arguments.out / "work"
    if not arguments.tiny:
        work.mkdir(parents=True, exist_ok=True)
        write_bf16(model, work / "model")
        model = str(work / "model")
    spec = Spec(model, str(work / "workload"), str(work), device, time.time(), **({"update_tokens": 40960} | sizes))
    write_workload(work / "workload", model, arguments.data, spec.prompts, arguments.tiny)
    return spec


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="whet/smollm2", help="a Hugging Face folder; it is turned into bf16")
    parser.add_argument("--data", type=Path, help="jsonl with the columns question and answer")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "techniques")
    parser.add_argument("--tiny", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
