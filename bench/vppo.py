"""GRPO against VPPO where only some tokens depend on the image: held-out accuracy over the number of samples.

Two built-in tasks, both about counting. `sentences`: of the fifteen tokens of "Well, this picture plainly shows me 3
red figures here, indeed." one depends on the picture and nine others are uncertain. `count`: of "Answer: 3" and its end
one in four depends on it and hardly another is uncertain. `sentences_small_steps` learns the first with an eighth of
the samples a step, where noise weighs more. The arms start from the same weights and differ in the keys of VPPO alone,
and in the learning rate, of which each has its best of the same grid. What is reported is validated on pictures drawn
for it; `--tune` validates on the built-in test split instead, for choosing settings, with seeds that are not reported.

    python bench/vppo.py [--task sentences] [--seeds 1 2 3] [--jobs 2] [--out bench/results]
    python bench/vppo.py --tune --seeds 100 --arms grpo --both worker.actor.optim.lr=8e-4 --out /tmp/tune

Writes vppo_TASK.md (tables), vppo_TASK.json (every curve) and vppo_TASK.png, which needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from whet.assets.questions import Question, count
from whet.assets.sentences import ask_sentence
from whet.assets.store import resolve_data, resolve_model
from whet.assets.vision import SCHEMA, png, row
from whet.tracking import read_metrics

EXAMPLES = Path(__file__).parent.parent / "examples"
CONFIG = EXAMPLES / "vision" / "count_grpo.yaml"
HELD_OUT_ROWS, HELD_OUT_SEED = 400, 2024
TARGETS = (0.5, 0.6, 0.7, 0.8)

SAME: dict[str, object] = {
    "data.rollout_batch_size": 32,
    "worker.rollout.n": 8,
    "worker.rollout.val_override_config.n": 1,
    "trainer.val_freq": 5,
    "trainer.save_freq": -1,
    "trainer.log_samples": "false",
}
VPPO: dict[str, object] = {
    "algorithm.use_vppo_on_perception": "true",
    "algorithm.use_advantage_shaping": "true",
    "algorithm.advantage_scaling_min": 0.9,
    "algorithm.perception_mask": "patches",
    "algorithm.perception_mask_ratio": 0.5,
}
LR, SHARE, ESTIMATE = "worker.actor.optim.lr", "algorithm.top_p_perception_tokens", "algorithm.perception_kl"


@dataclass(frozen=True, slots=True)
class Task:
    """What is learned, and how each arm learns it."""

    ask: Callable[[Random], Question]
    model: str
    files: str  # the data files, up to "train" and "test"
    keys: dict[str, object]
    arms: dict[str, dict[str, object]]
    steps: int


SENTENCES = Task(
    ask_sentence,
    "whet/sentences",
    "whet/sentences@",
    {
        "worker.reward.reward_function": f"{EXAMPLES / 'reward_function' / 'shapes.py'}:compute_told",
        # As published. Without it now and then a reply derails, and such replies are those that depend most on the
        # picture: one of them in a mini-batch would weigh more than ten others.
        "worker.rollout.top_p": 0.99,
        "data.format_prompt": "null",
        "data.max_response_length": 24,
    },
    {
        "grpo": {LR: 1.2e-3},
        "vppo": VPPO | {ESTIMATE: "full", SHARE: 0.1, LR: 8e-4},  # two tokens of fifteen
    },
    steps=60,
)
SMALL = {"data.rollout_batch_size": 8, "worker.actor.global_batch_size": 8, "worker.rollout.n": 4}
TASKS = {
    "sentences": SENTENCES,
    "sentences_small_steps": replace(
        SENTENCES,
        keys=SENTENCES.keys | SMALL | {"trainer.val_freq": 20},
        arms={"grpo": {LR: 4e-4}, "vppo": SENTENCES.arms["vppo"] | {LR: 2e-4}},
        steps=160,
    ),
    "count": Task(
        count,
        "whet/vision",
        "whet/shapes@count_",
        {},
        {"grpo": {LR: 1.2e-3}, "vppo": VPPO | {ESTIMATE: "k3", SHARE: 0.25, LR: 1.2e-3}},  # the answer, of four tokens
        steps=50,
    ),
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
    task = TASKS[arguments.task]
    both, other = (dict(setting.split("=", 1) for setting in given) for given in (arguments.both, arguments.set))
    same = SAME | task.keys
    same |= {"worker.actor.model.model_path": task.model, "data.train_files": f"{task.files}train"}
    arms = {arm: task.arms[arm] | both | (other if arm == "vppo" else {}) for arm in arguments.arms}
    steps = arguments.steps or task.steps
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(arguments.jobs) as pool:
        folder = Path(place)
        resolve_model(task.model, print)  # once, not by two runs at a time
        held_out = f"{task.files}test" if arguments.tune else str(draw_held_out(task, folder / "held_out.parquet"))
        jobs = [(arm, seed) for seed in arguments.seeds for arm in arms]
        runs = list(pool.map(lambda job: run(job, same | arms[job[0]], steps, held_out, folder), jobs))
    arguments.out.mkdir(parents=True, exist_ok=True)
    table = tables(runs)
    print(table)
    file = arguments.out / f"vppo_{arguments.task}"
    file.with_suffix(".md").write_text(table)
    found = {"steps": steps, "held_out": held_out if arguments.tune else "drawn for it", "same": same}
    found |= {"arms": arms, "runs": [asdict(each) for each in runs]}
    file.with_suffix(".json").write_text(json.dumps(found, indent=1, default=str) + "\n")
    plot(runs, file.with_suffix(".png"))


def draw_held_out(task: Task, path: Path) -> Path:
    """Rows with pictures that are neither trained on nor looked at while settings are chosen."""
    seen = {
        image["bytes"]
        for part in ("train", "test")
        for images in pq.read_table(resolve_data(f"{task.files}{part}", print))["images"].to_pylist()
        for image in images
    }
    rng, questions = Random(f"{task.ask.__name__} bench {HELD_OUT_SEED}"), list[Question]()
    while len(questions) < HELD_OUT_ROWS:
        question = task.ask(rng)
        if png(question.images[0])["bytes"] not in seen:
            questions.append(question)
    rows = [row(task.ask.__name__, question) for question in questions]
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path)
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
    samples = int(str(settings["data.rollout_batch_size"])) * int(str(settings["worker.rollout.n"]))  # a step
    curve = [(line["step"] * samples, round(line["val/accuracy"], 4)) for line in lines if "val/accuracy" in line]
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
        accuracies = [[each.curve[i][1] for each in of[arm]] for i in points]
        accuracies.append([statistics.mean(accuracy for _, accuracy in each.curve[1:]) for each in of[arm]])
        masked = statistics.mean(each.masked for each in of[arm])
        lines.append(f"| {arm.upper()} | {' | '.join(map(_percent, accuracies))} | {masked:.0%} |")
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
    parser.add_argument("--task", choices=list(TASKS), default="sentences")
    parser.add_argument("--steps", type=int, help="by default what the task was measured with")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--arms", nargs="+", choices=["grpo", "vppo"], default=["grpo", "vppo"])
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="other settings of VPPO")
    parser.add_argument("--both", nargs="*", default=[], metavar="KEY=VALUE", help="other settings of both")
    parser.add_argument("--tune", action="store_true", help="validate on the split that settings are chosen by")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("bench/results"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
