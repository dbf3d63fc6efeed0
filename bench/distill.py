"""Samples that distillation needs to reach GRPO's final accuracy on the quickstart task.

1. A teacher: the quickstart, trained by GRPO for longer (200 steps, learning rate falling to 0).
2. For each seed the quickstart itself: GRPO, 50 steps of 256 samples.
3. For each seed and way to learn, a student from the quickstart's first weights: 40 steps of 64 samples, a fifth.

    python bench/distill.py [--seeds 3] [--jobs 2] [--out build/distill]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean

from whet.tracking import read_metrics

QUICKSTART = Path(__file__).parent.parent / "examples" / "quickstart.yaml"
TEACHER = {
    "trainer.max_steps": 200,
    "trainer.val_freq": 50,
    "trainer.save_freq": 200,
    "worker.actor.optim.lr_scheduler_type": "cosine",
}
STUDENT = {
    "trainer.max_steps": 40,
    "trainer.val_freq": 10,
    "trainer.save_freq": -1,
    "data.rollout_batch_size": 64,
    "worker.actor.global_batch_size": 64,
    "worker.rollout.n": 1,
    "worker.actor.ppo_epochs": 4,
    "worker.actor.optim.lr": 2e-3,
    "worker.actor.optim.lr_scheduler_type": "cosine",
}
WAYS: dict[str, dict[str, object]] = {
    "reverse KL": {},
    "forward KL": {"algorithm.distill.divergence": "forward_kl"},
    "JSD, β = 0.5": {"algorithm.distill.divergence": "jsd"},
}
SAMPLES = {"GRPO": 50 * 256, **dict.fromkeys(WAYS, 40 * 64)}


def main() -> None:
    arguments = _arguments()
    out = arguments.out.resolve()
    print(f"teacher: {train('teacher', 7, TEACHER, out):.1%}", flush=True)
    folder = out / "teacher_7" / f"global_step_{TEACHER['trainer.max_steps']}" / "actor" / "huggingface"
    jobs = {("GRPO", seed): {"trainer.save_freq": -1} for seed in range(1, arguments.seeds + 1)}
    for name, keys in WAYS.items():
        for seed in range(1, arguments.seeds + 1):
            jobs[name, seed] = STUDENT | keys | {"algorithm.distill.model_path": folder}
    with ThreadPoolExecutor(arguments.jobs) as pool:
        found = dict(zip(jobs, pool.map(lambda job: train(*job, jobs[job], out), jobs)))
    print("| | samples |" + "".join(f" seed {seed} |" for seed in range(1, arguments.seeds + 1)) + " mean |")
    print("|---|---|" + "---|" * (arguments.seeds + 1))
    for name in SAMPLES:
        scores = [found[name, seed] for seed in range(1, arguments.seeds + 1)]
        print(f"| {name} | {SAMPLES[name]:,} |" + "".join(f" {s:.1%} |" for s in scores) + f" {mean(scores):.1%} |")


def train(name: str, seed: int, keys: dict[str, object], out: Path) -> float:
    """Train in a process of its own; return the last validation accuracy."""
    place = out / f"{''.join(c for c in name if c.isalnum())}_{seed}"
    every = {
        "config": QUICKSTART,
        "trainer.save_checkpoint_path": place,
        "trainer.log_samples": "false",
        "trainer.quiet": "true",
        "worker.rollout.seed": seed,
        "data.seed": seed,
    }
    command = [sys.executable, "-m", "whet.cli", "train", *(f"{key}={value}" for key, value in (every | keys).items())]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        sys.exit(f"{name}: {done.stderr}{done.stdout[-2000:]}")
    return [line["val/accuracy"] for line in read_metrics(place / "metrics.jsonl") if "val/accuracy" in line][-1]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("build/distill"), help="run folders; existing runs continue")
    return parser.parse_args()


if __name__ == "__main__":
    main()
