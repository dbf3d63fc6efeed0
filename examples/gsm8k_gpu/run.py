"""SmolLM2-135M on GSM8K in minutes of one GPU: a supervised warm-up, then GRPO until the time is up.

    python run.py --data gsm8k/ --out result/ [--minutes 8] [--model whet/smollm2]

--data is a folder with GSM8K's train.jsonl and test.jsonl (question, answer). Everything counts towards the minutes:
loading, three greedy evaluations on all 1,319 test problems (before, after the warm-up, at the end), training and
saving. What to tune is in warm_up.yaml and grpo.yaml; --warm-up-set and --set change single keys of them.
"""

from __future__ import annotations

import time

STARTED = time.time()  # before the slow imports: they are part of what a user waits for

import argparse  # noqa: E402
import gc  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import threading  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from pathlib import Path  # noqa: E402

import torch  # noqa: E402
from curve import scored, training_points, write_csv, write_png  # noqa: E402
from evaluate import Score, evaluate, gain  # noqa: E402
from warm_up import warm_up  # noqa: E402

from whet.cli import main as whet  # noqa: E402
from whet.config import load_config  # noqa: E402

HERE = Path(__file__).parent


def main() -> None:
    arguments = _arguments()
    out, data = arguments.out.absolute(), arguments.data.absolute()
    out.mkdir(parents=True, exist_ok=True)
    before = evaluate(arguments.model, data, out / "before", arguments.set)
    points = [scored(_minute(), "before", before)]
    print(f"before: {before}", flush=True)

    keys = [f"data.train_files={data / 'train.jsonl'}", f"worker.actor.model.model_path={arguments.model}"]
    config = load_config([f"config={HERE / 'warm_up.yaml'}", *keys, *arguments.warm_up_set])
    trained = warm_up(config, out / "warm_up")
    _give_memory_back()
    begin = time.time()
    warm = evaluate(out / "warm_up" / "huggingface", data, out / "after_warm_up", arguments.set)
    evaluation = time.time() - begin
    points.append(scored(_minute(), "warm-up", warm))
    print(f"after the warm-up: {warm}", flush=True)

    _give_memory_back()
    grpo_began = time.time()
    deadline = STARTED + 60 * arguments.minutes - 1.2 * evaluation - arguments.reserve
    train_until(deadline, out / "warm_up" / "huggingface", data, out / "grpo", arguments.set)
    grpo_ended = time.time()
    points += training_points(out / "grpo", _minute(), warm.problems)
    _give_memory_back()
    after = evaluate(last_checkpoint(out / "grpo"), data, out / "after", arguments.set)
    points.append(scored(_minute(), "end", after))
    print(f"after GRPO: {after}", flush=True)

    results = {
        "minutes": _minute(),
        "limit_minutes": arguments.minutes,
        "before": summary(before, points[0].minute),
        "warm_up": summary(warm, points[1].minute) | trained,
        "grpo": summary(after, points[-1].minute) | {"seconds": grpo_ended - grpo_began, "steps": _steps(out / "grpo")},
        "gain_of_grpo": {"interval": gain(warm, after), "accuracy": after.accuracy - warm.accuracy},
        "deadline_s": deadline - STARTED,
    }
    (out / "results.json").write_text(json.dumps(results, indent=1))
    write_csv(points, out / "curve.csv")
    write_png({"whet": points}, out / "curve.png")
    print(json.dumps(results, indent=1))


def train_until(deadline: float, model: Path, data: Path, run: Path, keys: Sequence[str]) -> None:
    """`whet train` with grpo.yaml, interrupted as by Ctrl-C when the time comes: it finishes the step and saves."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.1):
            if time.time() >= deadline and (run / "metrics.jsonl").exists():  # at least one step
                os.kill(os.getpid(), signal.SIGINT)
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    files = [f"data.train_files={data / 'train.jsonl'}", f"data.val_files={data / 'test.jsonl'}"]
    folders = [f"worker.actor.model.model_path={model}", f"trainer.save_checkpoint_path={run}"]
    try:
        code = whet(["train", f"config={HERE / 'grpo.yaml'}", *files, *folders, *keys])
    finally:
        done.set()
        watcher.join()
    if code:
        raise SystemExit(code)


def last_checkpoint(run: Path) -> Path:
    """The model folder that a run saved last."""
    saved = max(run.glob("global_step_*"), key=lambda path: int(path.name.rpartition("_")[2]))
    return saved / "actor" / "huggingface"


def _steps(run: Path) -> int:
    return int(last_checkpoint(run).parents[1].name.rpartition("_")[2])


def _give_memory_back() -> None:
    """The next stage opens its own model."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _minute() -> float:
    return (time.time() - STARTED) / 60


def summary(score: Score, minute: float) -> dict[str, object]:
    """An evaluation and when it was done, for results.json."""
    return {
        "accuracy": score.accuracy,
        "interval": score.interval,
        "correct": score.correct,
        "problems": score.problems,
        "minute": minute,
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train.jsonl and test.jsonl")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=8.0, help="limit of the whole program")
    parser.add_argument("--model", default="whet/smollm2")
    parser.add_argument(
        "--reserve", type=float, default=12.0, help="seconds kept for the last step, saving and loading"
    )
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="keys over grpo.yaml")
    parser.add_argument("--warm-up-set", nargs="*", default=[], metavar="KEY=VALUE", help="keys over warm_up.yaml")
    return parser.parse_args()


if __name__ == "__main__":
    main()
