"""GRPO against VPPO where only some tokens depend on the image: held-out accuracy over the number of samples.

The task is the built-in `count`: of "Answer: 3" and its end one token in four depends on the picture. Both start from
the same weights and differ in the keys of VPPO alone. What is reported is validated on pictures drawn for it; `--tune`
validates on whet/shapes@count_test instead, for choosing settings, with seeds that are not reported.

    python bench/vppo.py [--steps 50] [--seeds 1 2 3] [--jobs 2] [--out bench/results]   # the plot needs matplotlib
    python bench/vppo.py --tune --seeds 100 --arms vppo --set algorithm.top_p_perception_tokens=0.5 --out /tmp/tune

Writes vppo.md (tables), vppo.json (every curve) and vppo.png.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from whet.assets.looking import Question, ask
from whet.assets.store import builtin
from whet.assets.vision import SCHEMA, png, row
from whet.run.tracking import read_metrics

CONFIG = Path(__file__).parent.parent / "examples" / "vision" / "count_grpo.yaml"
TASK = "count"
HELD_OUT_ROWS, HELD_OUT_SEED = 400, 2024
PROMPTS, SAMPLES = 32, 8  # a step
VALIDATE_EVERY = 5
TARGETS = (0.5, 0.6, 0.7, 0.8)

SAME = {
    "data.train_files": f"whet/shapes@{TASK}_train",
    "data.rollout_batch_size": PROMPTS,
    "worker.rollout.n": SAMPLES,
    "worker.rollout.val_override_config.n": 1,
    "worker.actor.optim.lr": 1.2e-3,
    "trainer.val_freq": VALIDATE_EVERY,
    "trainer.save_freq": -1,
    "trainer.log_samples": "false",
}
ARMS: dict[str, dict[str, object]] = {
    "grpo": {},
    "vppo": {
        "algorithm.use_vppo_on_perception": "true",
        "algorithm.top_p_perception_tokens": 0.25,  # the answer, of four tokens
        "algorithm.use_advantage_shaping": "true",
        "algorithm.advantage_scaling_min": 0.9,
        "algorithm.perception_mask": "patches",
        "algorithm.perception_mask_ratio": 0.5,
        "algorithm.perception_kl": "k3",
    },
}


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one run."""

    arm: str
    seed: int
    curve: list[tuple[int, float]]  # (samples trained on, accuracy on held-out pictures)
    seconds: float  # of a step, the median
    masked: float  # share of them that masks and masked passes take

    @property
    def final(self) -> float:
        """The accuracy at the end."""
        return self.curve[-1][1]

    def samples_to(self, accuracy: float) -> float | None:
        """Samples until the curve, linear between validations, first reaches this; None where it never does."""
        before = self.curve[0]
        for point in self.curve:
            if point[1] >= accuracy:
                rise = point[1] - before[1]
                share = (accuracy - before[1]) / rise if rise > 0 else 1.0
                return before[0] + share * (point[0] - before[0])
            before = point
        return None


def main() -> None:
    arguments = _arguments()
    same = SAME | dict(setting.split("=", 1) for setting in arguments.both)
    arms = {name: dict(ARMS[name]) for name in arguments.arms}
    if "vppo" in arms:
        arms["vppo"] |= dict(setting.split("=", 1) for setting in arguments.set)
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(arguments.jobs) as pool:
        folder = Path(place)
        builtin("whet/vision", print)  # once, not by two runs at a time
        held_out = f"whet/shapes@{TASK}_test" if arguments.tune else str(draw_held_out(folder / "held_out.parquet"))
        jobs = [(arm, seed) for seed in arguments.seeds for arm in arms]
        runs = list(pool.map(lambda job: run(job, same | arms[job[0]], arguments.steps, held_out, folder), jobs))
    arguments.out.mkdir(parents=True, exist_ok=True)
    table = tables(runs)
    print(table)
    (arguments.out / "vppo.md").write_text(table)
    found = {"steps": arguments.steps, "held_out": held_out if arguments.tune else "drawn for it", "same": same}
    found |= {"arms": arms, "runs": [asdict(each) for each in runs]}
    (arguments.out / "vppo.json").write_text(json.dumps(found, indent=1, default=str) + "\n")
    plot(runs, arguments.out / "vppo.png")


def draw_held_out(path: Path) -> Path:
    """Rows with pictures that are neither trained on nor looked at while settings are chosen."""
    shapes = builtin("whet/shapes", print)
    seen = {
        image["bytes"]
        for part in ("train", "test")
        for images in pq.read_table(shapes / f"{TASK}_{part}.parquet")["images"].to_pylist()
        for image in images
    }
    rng, questions = Random(f"{TASK} bench {HELD_OUT_SEED}"), list[Question]()
    while len(questions) < HELD_OUT_ROWS:
        question = ask(TASK, rng)
        if png(question.images[0])["bytes"] not in seen:
            questions.append(question)
    pq.write_table(pa.Table.from_pylist([row(TASK, question) for question in questions], SCHEMA), path)
    return path


def run(job: tuple[str, int], settings: dict[str, object], steps: int, held_out: str, folder: Path) -> Run:
    """Train one arm with one seed in a process of its own, on one thread."""
    arm, seed = job
    place = folder / f"{arm}_{seed}"
    keys = settings | {"config": CONFIG, "data.val_files": held_out, "trainer.max_steps": steps}
    keys |= {"trainer.save_checkpoint_path": place, "data.seed": seed, "worker.rollout.seed": seed}
    command = [sys.executable, "-m", "whet.cli", "train", *(f"{key}={value}" for key, value in keys.items())]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        sys.exit(f"{arm}, seed {seed}: {done.stderr}{done.stdout[-2000:]}")
    lines = read_metrics(place / "metrics.jsonl")
    curve = [
        (line["step"] * PROMPTS * SAMPLES, round(line["val/accuracy"], 4)) for line in lines if "val/accuracy" in line
    ]
    stepped = [line for line in lines if "timing_s/step" in line]
    extra = sum(line.get(f"timing_s/{part}", 0.0) for line in stepped for part in ("mask_images", "masked_log_probs"))
    seconds = [line["timing_s/step"] for line in stepped]
    result = Run(arm, seed, curve, round(statistics.median(seconds), 3), round(extra / sum(seconds), 3))
    print(f"{arm}, seed {seed}: {result.final:.1%} after {curve[-1][0]} samples", flush=True)
    return result


def tables(runs: Sequence[Run]) -> str:
    """Accuracies and samples, mean over seeds with the least and the most."""
    arms = list(dict.fromkeys(each.arm for each in runs))
    of = {arm: [each for each in runs if each.arm == arm] for arm in arms}
    points = [0, len(runs[0].curve) // 2, len(runs[0].curve) - 1]
    middle, last = (runs[0].curve[i][0] for i in points[1:])
    lines = [
        f"| | at the start | after {middle:,} samples | after {last:,} samples | mean of all validations after "
        "the start | share of a step for masks |",
        "|---" * 6 + "|",
    ]
    for arm in arms:
        columns = [[each.curve[i][1] for each in of[arm]] for i in points]
        columns.append([statistics.mean(accuracy for _, accuracy in each.curve[1:]) for each in of[arm]])
        masked = statistics.mean(each.masked for each in of[arm])
        lines.append(f"| {arm.upper()} | {' | '.join(map(_percent, columns))} | {masked:.0%} |")
    lines += [
        "",
        f"| samples to reach | {' | '.join(arm.upper() for arm in arms)} | VPPO : GRPO |",
        "|---" * (len(arms) + 2) + "|",
    ]
    goals: list[tuple[str, dict[int, float]]] = []
    if "grpo" in of:
        goals.append(("GRPO's last accuracy, seed by seed", {each.seed: each.final for each in of["grpo"]}))
    goals += [(f"{target:.0%}", {each.seed: target for each in runs}) for target in TARGETS]
    for name, goal in goals:
        needed = {arm: [each.samples_to(goal[each.seed]) for each in of[arm] if each.seed in goal] for arm in arms}
        lines.append(f"| {name} | {' | '.join(_samples(needed[arm]) for arm in arms)} | {_ratio(needed)} |")
    return "\n".join(lines) + "\n"


def _percent(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.1%} ({min(values):.1%} to {max(values):.1%})"


def _samples(values: Sequence[float | None]) -> str:
    reached = [value for value in values if value is not None]
    if not reached:
        return "not reached"
    text = f"{statistics.mean(reached):,.0f} ({min(reached):,.0f} to {max(reached):,.0f})"
    return text if len(reached) == len(values) else f"{text}; {len(reached)} of {len(values)} seeds"


def _ratio(needed: dict[str, list[float | None]]) -> str:
    """Of the means over seeds, where every seed of both got there."""
    means = []
    for arm in ("vppo", "grpo"):
        values = [value for value in needed.get(arm, [None]) if value is not None]
        if len(values) < len(needed.get(arm, [None])):
            return ""
        means.append(statistics.mean(values))
    return f"{means[0] / means[1]:.2f}" if means[1] else ""


def plot(runs: Sequence[Run], path: Path) -> None:
    """Each run a thin line, the mean over seeds a thick one."""
    try:
        import matplotlib
    except ImportError:
        print("matplotlib is not installed: no plot")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for i, arm in enumerate(dict.fromkeys(each.arm for each in runs)):
        curves = [each.curve for each in runs if each.arm == arm]
        for curve in curves:
            axes.plot(*zip(*curve), color=f"C{i}", linewidth=0.7, alpha=0.5)
        mean = [(points[0][0], statistics.mean(accuracy for _, accuracy in points)) for points in zip(*curves)]
        axes.plot(*zip(*mean), color=f"C{i}", linewidth=2, label=f"{arm.upper()}, mean of {len(curves)} seeds")
    axes.axhline(0.2, color="grey", linestyle=":", linewidth=1, label="chance")
    axes.set(xlabel="samples", ylabel="accuracy on held-out pictures", ylim=(0, 1))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=110)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="other settings of VPPO")
    parser.add_argument("--both", nargs="*", default=[], metavar="KEY=VALUE", help="other settings of both")
    parser.add_argument("--tune", action="store_true", help="validate on the split that settings are chosen by")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("bench/results"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
