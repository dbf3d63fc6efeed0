"""Synchronous against asynchronous training where rewards take their time.

    python bench/async_reward.py                                  # the quickstart, staleness 0, 1, 2 and 4
    python bench/async_reward.py --staleness 0 4 --seeds 5 --steps 50 --correction decoupled_token_is

Trains the quickstart with a reward whose latency is lognormal (mean `--latency` seconds, sigma 1) in `--workers`
processes, and prints for every bound on staleness: seconds a step, seconds until the mean accuracy of five steps
reaches `--target`, the mean accuracy of the last five steps, and the staleness of its tokens. Several seeds give mean ±
standard error. Each run lasts as long as its rewards do: with the defaults about ten minutes in all.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from whet.config.examples import examples_folder

REWARD = """
import hashlib, math, random, time

def compute_score(reward_input):
    time.sleep(random.lognormvariate(math.log({latency}) - 0.5, 1.0) if {latency} else 0.0)
    right = reward_input["response"].strip() == "Answer: " + str(reward_input["ground_truth"])
    form = reward_input["response"].startswith("Answer: ")
    return {{"overall": 0.9 * right + 0.1 * form, "accuracy": float(right)}}
"""


def run(folder: Path, keys: list[str]) -> list[dict[str, float]]:
    """Train the quickstart with further keys; the metrics of its steps."""
    arguments = [f"config={examples_folder() / 'quickstart.yaml'}", f"trainer.save_checkpoint_path={folder}", *keys]
    quiet = ["trainer.val_before_train=false", "trainer.val_freq=-1", "trainer.quiet=true", "trainer.log_samples=false"]
    subprocess.run([sys.executable, "-m", "whet", "train", *arguments, *quiet], check=True, stdout=subprocess.DEVNULL)
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def measure(metrics: list[dict[str, float]], target: float) -> dict[str, float]:
    """Summarise a run."""
    accuracy = [line["reward/accuracy"] for line in metrics]
    seconds = [line["timing_s/step"] for line in metrics]
    smooth = [statistics.mean(accuracy[max(0, i - 4) : i + 1]) for i in range(len(accuracy))]
    reached = next((i for i, value in enumerate(smooth) if i >= 4 and value >= target), None)
    return {
        "seconds a step": statistics.mean(seconds),
        f"seconds to {target:.0%}": float("nan") if reached is None else sum(seconds[: reached + 1]),
        "final accuracy": smooth[-1],
        "staleness": statistics.mean(line.get("async/staleness_mean", 0.0) for line in metrics),
    }


def main() -> None:
    """Run every bound with every seed and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--staleness", type=int, nargs="+", default=[0, 1, 2, 4])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--latency", type=float, default=1.0, help="mean seconds of one reward")
    parser.add_argument("--workers", type=int, default=256)
    parser.add_argument("--target", type=float, default=0.8)
    parser.add_argument("--ahead", type=int, help="trainer.steps_ahead of the asynchronous runs")
    parser.add_argument("--correction", help="algorithm.rollout_correction of the asynchronous runs")
    parser.add_argument("keys", nargs="*", help="further keys of the config")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        reward = Path(folder) / "reward.py"
        reward.write_text(REWARD.format(latency=args.latency))
        for bound in args.staleness:
            found = []
            for seed in range(args.seeds):
                keys = [
                    f"worker.reward.reward_function={reward}:compute_score",
                    f"worker.reward.num_cpus={args.workers}",
                    f"trainer.max_staleness={bound}",
                    f"trainer.max_steps={args.steps}",
                    f"trainer.seed={seed + 1}",
                    *([f"algorithm.rollout_correction={args.correction}"] if args.correction and bound else []),
                    *([f"trainer.steps_ahead={min(args.ahead, bound)}"] if args.ahead and bound else []),
                    *args.keys,
                ]
                found.append(measure(run(Path(folder) / f"{bound}-{seed}", keys), args.target))
            print(f"max_staleness={bound}", *(_column(name, found) for name in found[0]), sep="  ", flush=True)


def _column(name: str, found: list[dict[str, float]]) -> str:
    values = [each[name] for each in found]
    if any(map(math.isnan, values)):  # a run that never got there
        return f"{name} in {sum(not math.isnan(value) for value in values)} of {len(values)} runs"
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
    return f"{name} {statistics.mean(values):.2f}" + (f" ± {error:.2f}" if error is not None else "")


if __name__ == "__main__":
    main()
