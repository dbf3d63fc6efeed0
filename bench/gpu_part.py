"""What the parts of the GPU benchmark share: each reads a spec, runs in a process of its own and writes a result."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook


@dataclass(frozen=True, slots=True)
class Spec:
    """One part: which program does what with which model, and how much of it."""

    model: str  # a Hugging Face folder
    workload: str  # what gpu_workload.py wrote
    work: str  # a folder for what the part writes on the way
    device: str
    started: float  # when the part's process was started, in seconds of time.time()
    prompts: int = 64  # a step
    samples: int = 8  # a prompt
    new_tokens: int = 512
    steps: int = 7
    warm_up: int = 2  # of those, steps that do not count
    rounds: int = 3
    micro_batch: int = 64  # TRL: samples a forward pass
    correction: bool = True  # TRL: weigh samples by how far vLLM's log-probs are from its own
    update_tokens: int = 16384  # whet's update part: tokens a micro-batch
    profile: bool = False
    keys: dict[str, str] = field(default_factory=dict)  # further keys of whet's config


def run_part(kinds: dict[str, Callable[[Spec], dict[str, Any]]]) -> None:
    """The main function of a part: KIND SPEC RESULT."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=kinds)
    parser.add_argument("spec", type=Path)
    parser.add_argument("result", type=Path)
    arguments = parser.parse_args()
    spec = Spec(**json.loads(arguments.spec.read_text()))
    result = kinds[arguments.kind](spec)
    if spec.device == "cuda":
        result["torch_peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
    arguments.result.write_text(json.dumps(result))


def write_spec(spec: Spec, path: Path) -> None:
    """For `run_part` to read."""
    path.write_text(json.dumps(asdict(spec)))


class StepMoments:
    """When each optimizer step of this process was done, whoever makes it."""

    def __init__(self) -> None:
        self.moments: list[float] = []
        register_optimizer_step_post_hook(lambda optimizer, args, kwargs: self._note())

    def _note(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.moments.append(time.time())

    def result(self, spec: Spec) -> dict[str, Any]:
        """From the end of an update to the end of the next: everything that a step takes, logging included."""
        return {
            "first_step_s": self.moments[0] - spec.started,
            "step_s": [b - a for a, b in pairwise(self.moments)][spec.warm_up - 1 :],
        }


def timed(device: str, call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of a call, to the end of what it started on the device, and what it returned."""
    if device == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    value = call()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin, value


def profiled(spec: Spec, name: str, call: Callable[[], Any]) -> None:
    """Print and keep the kernels that a call spends its time in."""
    from torch.profiler import ProfilerActivity, profile

    cuda = spec.device == "cuda"
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA] if cuda else [ProfilerActivity.CPU]
    with profile(activities=activities) as profiler:
        seconds, _ = timed(spec.device, call)
    order = "self_device_time_total" if cuda else "self_cpu_time_total"
    table = profiler.key_averages().table(sort_by=order, row_limit=30, max_name_column_width=80)
    text = f"{name}: {seconds:.3f} s under the profiler\n{table}\n"
    print(text, flush=True)
    (Path(spec.work) / f"profile_{name}.txt").write_text(text)
