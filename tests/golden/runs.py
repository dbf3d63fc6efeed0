"""Short runs of every kind of training, and a fingerprint of what each one computed.

A change that only moves code must not change a bit of them. Rounding differs between CPUs, so a recording is compared
on the machine that made it and nowhere else: `make golden` records, tests/golden/test_golden.py compares.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[2]
RECORDINGS = ROOT / ".golden"
_MACHINE = ("timing_s/", "perf/", "memory/")  # metrics that measure the machine
_SETTINGS = ("ATEN_CPU_CAPABILITY", "DNNL_MAX_CPU_ISA", "MKL_CBWR")  # change which instructions are used

_SMALL = ("data.rollout_batch_size=8", "worker.rollout.n=4", "worker.actor.global_batch_size=4", "trainer.max_steps=4")
_VALIDATED = ("worker.rollout.val_override_config.n=2", "trainer.val_freq=2", "trainer.save_freq=4")

# Arguments of `whet`; each run is told its folder besides.
RUNS: dict[str, tuple[str, ...]] = {
    "quickstart": ("train", "config=examples/quickstart.yaml", *_SMALL, *_VALIDATED),
    "ppo": ("train", "config=examples/algorithms/ppo.yaml", *_SMALL, *_VALIDATED, "worker.critic.global_batch_size=4"),
    "vppo": (
        *("train", "config=examples/vision/vppo.yaml", *_SMALL),
        *("trainer.val_freq=-1", "trainer.val_before_train=false"),
    ),
    "lora": ("train", "config=examples/lora.yaml", *_SMALL, *_VALIDATED),
    "two_ranks": (
        *("train", "config=examples/quickstart.yaml", *_SMALL, *_VALIDATED),
        *("trainer.n_gpus_per_node=2", "algorithm.disable_kl=false", "algorithm.use_kl_loss=true"),
    ),
    "sft": ("sft", "config=examples/sft/quickstart.yaml", "trainer.max_steps=6", "trainer.val_freq=3"),
}


def cpu() -> str:
    """Name what decides rounding on this machine: processor, torch, instruction set, settings."""
    model = platform.processor()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    chosen = [f"{name}={os.environ[name]}" for name in _SETTINGS if name in os.environ]
    return " ".join([model, f"torch {torch.__version__}", torch.backends.cpu.get_cpu_capability(), *chosen])


def recording() -> Path:
    """The file that holds the fingerprints recorded on this CPU."""
    return RECORDINGS / f"{hashlib.sha256(cpu().encode()).hexdigest()[:16]}.json"


def run(name: str, tree: Path, folder: Path) -> dict[str, Any]:
    """Run one of RUNS with the code in `tree` and return its fingerprint: metrics by step, hashes of weights."""
    arguments = [*RUNS[name], "trainer.device=cpu", f"trainer.save_checkpoint_path={folder}", "trainer.quiet=true"]
    environment = os.environ | {
        "PYTHONPATH": str(tree),
        "OMP_NUM_THREADS": "1",
        "RAY_ADDRESS": "local",
        "WHET_HOME": str(RECORDINGS / "home"),  # the same start for both trees
    }
    command = [sys.executable, "-m", "whet", *arguments]
    finished = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=600)
    if finished.returncode:
        raise RuntimeError(f"{name}: exit code {finished.returncode}\n{finished.stdout}\n{finished.stderr}")
    return {"metrics": _metrics(folder / "metrics.jsonl"), "weights": _weights(folder)}


def _metrics(file: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [{name: value for name, value in line.items() if not name.startswith(_MACHINE)} for line in lines]


def _weights(folder: Path) -> dict[str, str]:
    files = sorted([*folder.rglob("*.safetensors"), *folder.rglob("optimizer.pt")])
    assert files, f"{folder}: no weights were saved"
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
