"""Every recipe of examples/algorithms on the quickstart task: accuracy after the same number of steps, and its cost.

Runs each recipe for the same steps and prompts a step, writes a table and a plot. Recipes that refill dropped groups
(dapo) draw more samples for a step than the others.

    python bench/algorithms.py [--steps 40] [--seeds 2] [--jobs 2] [--out docs]   # the plot needs matplotlib
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from whet.tracking import read_metrics

RECIPES = Path(__file__).parent.parent / "examples" / "algorithms"
Curve = list[tuple[int, float]]  # (step, validation accuracy)


def main() -> None:
    arguments = _arguments()
    names = arguments.recipes or sorted(path.stem for path in RECIPES.glob("*.yaml"))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(arguments.jobs) as pool:
        jobs = [(name, seed) for name in names for seed in range(1, arguments.seeds + 1)]
        results = dict(zip(jobs, pool.map(lambda job: run(*job, arguments.steps, Path(folder)), jobs)))
    curves = {name: _mean_curve([results[name, s][0] for s in range(1, arguments.seeds + 1)]) for name in names}
    seconds = {
        name: statistics.median(t for s in range(1, arguments.seeds + 1) for t in results[name, s][1]) for name in names
    }
    table = _table(curves, seconds, arguments.steps)
    print(table)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "algorithms_table.md").write_text(table)
    _plot(curves, arguments.out / "algorithms.png")


def run(name: str, seed: int, steps: int, folder: Path) -> tuple[Curve, list[float]]:
    """Train one recipe in a process of its own; its validation curve and the seconds of each step."""
    place = folder / f"{name}_{seed}"
    keys = {
        "config": RECIPES / f"{name}.yaml",
        "trainer.max_steps": steps,
        "trainer.val_freq": 5,
        "trainer.save_checkpoint_path": place,
        "trainer.save_freq": -1,
        "trainer.log_samples": "false",
        "worker.rollout.seed": seed,
        "data.seed": seed,
    }
    command = [sys.executable, "-m", "whet.cli", "train", *(f"{key}={value}" for key, value in keys.items())]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        sys.exit(f"{name}: {done.stderr}{done.stdout[-2000:]}")
    lines = read_metrics(place / "metrics.jsonl")
    curve = [(line["step"], line["val/accuracy"]) for line in lines if "val/accuracy" in line]
    return curve, [line["timing_s/step"] for line in lines if "timing_s/step" in line]


def _mean_curve(curves: list[Curve]) -> Curve:
    return [(points[0][0], statistics.mean(accuracy for _, accuracy in points)) for points in zip(*curves)]


def _table(curves: dict[str, Curve], seconds: dict[str, float], steps: int) -> str:
    middle = max(step for step, _ in next(iter(curves.values())) if step <= steps // 2)
    rows = [
        f"| recipe | at the start | after {middle} steps | after {steps} steps | seconds a step |",
        "|---|---|---|---|---|",
    ]
    for name in sorted(curves, key=lambda name: -curves[name][-1][1]):
        at = dict(curves[name])
        first, last = curves[name][0][1], curves[name][-1][1]
        rows.append(f"| `{name}` | {first:.1%} | {at[middle]:.1%} | {last:.1%} | {seconds[name]:.2f} |")
    return "\n".join(rows) + "\n"


def _plot(curves: dict[str, Curve], path: Path) -> None:
    try:
        import matplotlib
    except ImportError:
        print("matplotlib is not installed: no plot")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 5.5), layout="constrained")
    styles = ["-", "--", ":"]
    for i, name in enumerate(sorted(curves, key=lambda name: -curves[name][-1][1])):
        steps, accuracy = zip(*curves[name])
        axes.plot(steps, accuracy, label=name, linestyle=styles[i // 7 % 3], color=f"C{i % 7}", linewidth=1.6)
    axes.set(xlabel="training step (32 prompts × 8 samples each)", ylabel="validation accuracy", ylim=(0, 1))
    axes.grid(alpha=0.3)
    axes.legend(ncols=2, fontsize=8, loc="lower right")
    figure.savefig(path, dpi=130)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", help="names of files in examples/algorithms; all of them by default")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("docs"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
