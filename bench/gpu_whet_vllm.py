"""whet with vLLM in bench/gpu.py: whole GRPO steps, and what it costs to change from sampling to training and back."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import gpu_whet
import torch
from gpu_part import Spec, run_part, timed
from gpu_workload import read_chats

from whet.model.load import end_ids, load_tokenizer
from whet.model.names import folder_weights
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.vllm.engine import VLLMEngine
from whet.rollout.spec import Opening, open_engine
from whet.training import parts
from whet.training.device import choose_placement
from whet.types import Prompt, Sample

FEW = 16  # new tokens a sample where the sampling itself is not what is measured


def steps(spec: Spec) -> dict[str, Any]:
    """`whet train` with worker.rollout.name=vllm."""
    return {"skipped": _missing(spec)} if _missing(spec) else gpu_whet.steps(_with_vllm(spec))


def switch(spec: Spec) -> dict[str, Any]:
    """Sleep after sampling, new weights after an update, and waking for the next samples, around a real rollout.

    `load_awake_s` is a weight update alone. Every round changes the weights, and compares vLLM's log-probs of what it
    then writes with the learner's: weights that did not arrive would show.
    """
    if _missing(spec):
        return {"skipped": _missing(spec)}
    config = gpu_whet.whet_config(_with_vllm(spec))
    model = parts.load_weights(spec.model, config, choose_placement(config))
    learner = parts.open_learner(config, model, total_steps=100)
    tokenizer = load_tokenizer(spec.model)
    engine = open_engine(Opening(config, model, tokenizer, end_ids(spec.model, tokenizer)))
    assert isinstance(engine, VLLMEngine)
    prompts = [Prompt(str(i), row["ids"], "") for i, row in enumerate(read_chats(spec.workload, spec.prompts))]
    many = SamplingParams(n=spec.samples, max_tokens=min(FEW, spec.new_tokens), ignore_eos=True)
    one = replace(many, n=1, max_tokens=1)
    ready = time.time() - spec.started
    taken: dict[str, list[float]] = {"first": [], "sleep": [], "load": [], "wake": [], "load_awake": [], "one": []}
    differences: list[float] = []

    def clock(name: str, call: Any) -> Any:
        seconds, value = timed(spec.device, call)
        taken[name].append(seconds)
        return value

    def publish(version: int) -> None:
        engine.load_weights(lambda: folder_weights(model), version)

    clock("first", lambda: publish(0))
    free: list[float] = []
    try:
        for round_ in range(1, spec.rounds + 1):
            engine.generate(prompts, many)
            clock("one", lambda: engine.generate(prompts[:1], one))
            before = _free(spec)
            clock("sleep", engine.release)
            free.append(_free(spec) - before)
            _change(model, round_)
            clock("load", lambda version=2 * round_ - 1: publish(version))
            clock("wake", lambda: engine.generate(prompts[:1], one))
            differences.append(_difference(engine.generate(prompts[:8], many), learner))
            _change(model, round_ + 100)
            clock("load_awake", lambda version=2 * round_: publish(version))
            differences.append(_difference(engine.generate(prompts[:8], many), learner))
    finally:
        engine.close()
    wake = [max(0.0, wake - one) for wake, one in zip(taken["wake"], taken["one"])]
    whole = [sum(each) for each in zip(taken["sleep"], taken["load"], wake)]
    median = statistics.median
    return {
        "ready_s": ready,
        "switch_s": whole,
        "stages_s": {"sleep": median(taken["sleep"]), "load": median(taken["load"]), "wake": median(wake)},
        "load_awake_s": taken["load_awake"],
        "first_load_s": taken["first"],
        "rounds": taken,
        "freed_gib": free,
        "weights": engine.last_load,
        "log_prob_diff_mean": median(differences),
        "log_prob_diff_max": max(differences),
    }


def _with_vllm(spec: Spec) -> Spec:
    keys = {"worker.rollout.name": "vllm"}
    if spec.device == "cpu":
        keys |= {"worker.rollout.enforce_eager": "true"}
    return replace(spec, keys=keys | spec.keys)


def _missing(spec: Spec) -> str:
    """Why there is nothing to measure; "" when there is."""
    python = spec.keys.get("worker.rollout.python", sys.executable)
    found = subprocess.run([python, "-c", "import vllm"], capture_output=True, text=True)
    return "" if not found.returncode else f"vLLM cannot be imported: {found.stderr.strip().splitlines()[-1][:100]}"


@torch.no_grad()
def _change(model: torch.nn.Module, round_: int) -> None:
    """Other weights of about the same size: a tenth of each changes its sign."""
    torch.manual_seed(round_)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.mul_(torch.where(torch.rand_like(parameter) < 0.1, -1.0, 1.0).to(parameter.dtype))


def _difference(samples: list[Sample], learner: Any) -> float:
    """Mean absolute difference of the sampler's log-probs from the learner's."""
    ours = learner.log_probs(samples)
    each = [abs(float(a) - b) for row, sample in zip(ours, samples) for a, b in zip(row, sample.log_probs)]
    return statistics.fmean(each)


def _free(spec: Spec) -> float:
    return torch.cuda.mem_get_info()[0] / 2**30 if spec.device == "cuda" else 0.0


if __name__ == "__main__":
    run_part({"steps": steps, "switch": switch})
