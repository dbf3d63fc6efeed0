"""Synchronous against asynchronous training on one GPU, with lengths of a long tail: tokens trained a second.

    python bench/async_gpu.py                        # Qwen3-1.7B's shape, 64 prompts x 8, up to 4,000 tokens
    python bench/async_gpu.py --tiny --steps 6       # the same lines on a CPU, in a minute

Writes a model of random weights, trains it by `whet train` once for each setting (see async_engine.py for the lengths)
and prints a line of JSON for each: tokens trained a second, the parts of a step, what waited, and the 50th and 99th
percentile of lengths. Every setting trains on the same prompts, as many in each step.

Steps that count are those behind `--warm-up` and before the last ones, in which nothing is sampled ahead any more: as
much is in flight at the end of the time as was at its beginning.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpu_shapes import write_random

from whet.assets import builtin
from whet.planning.lengths import read_lengths
from whet.tracking import read_metrics

HERE = Path(__file__).parent
REWARD = """
def compute_score(reward_input):
    return {"overall": float(hash(reward_input["response"]) % 7)}
"""
SETTINGS = {
    "synchronous": [],
    "staleness 1": ["trainer.max_staleness=1"],
    "staleness 4, 1 ahead": ["trainer.max_staleness=4", "trainer.steps_ahead=1"],
    "staleness 4, 1 ahead, cache kept": [
        "trainer.max_staleness=4",
        "trainer.steps_ahead=1",
        "worker.rollout.recompute_cache=false",
    ],
}
AHEAD = 1  # steps' worth of groups that the settings sample ahead


def main() -> None:
    """Train with every setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="a tiny model and short responses, for a CPU")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--longest", type=int, default=4000, help="tokens of a response at most")
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("keys", nargs="*", help="further keys of the config")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        quickstart = builtin("whet/quickstart", say=print)
        write_random(folder / "model", str(quickstart / "model"), args.tiny)
        (folder / "reward.py").write_text(REWARD)
        (folder / "empty.yaml").write_text("{}\n")
        for name in args.settings:
            begun = time.time()
            run = folder / name.replace(" ", "_").replace(",", "")
            keys = [f"trainer.max_steps={args.steps}", *SETTINGS[name], *args.keys]
            _train(folder, run, args.tiny, 96 if args.tiny else args.longest, keys)
            line = {"setting": name, **_summary(run, args.warm_up), "wall_s": time.time() - begun}
            print(json.dumps({key: value for key, value in line.items() if key != "lengths"}), flush=True)
            if args.out is not None:
                with args.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")


def _train(folder: Path, run: Path, tiny: bool, longest: int, keys: list[str]) -> None:
    quickstart = builtin("whet/quickstart", say=print)
    sizes = (8, 64) if tiny else (64, 512)
    settings = {
        "data.train_files": quickstart / "train.jsonl",
        "data.prompt_key": "problem",
        "data.max_prompt_length": 64,
        "data.max_response_length": longest,
        "data.rollout_batch_size": sizes[0],
        "data.shuffle": "false",
        "worker.actor.model.model_path": folder / "model",
        "worker.actor.global_batch_size": sizes[0],
        "worker.actor.optim.lr": 1e-7,
        "worker.rollout.name": f"{HERE / 'async_engine.py'}:SPEC",
        "worker.rollout.n": 8,
        "worker.rollout.max_num_seqs": sizes[1],
        "worker.reward.reward_function": f"{folder / 'reward.py'}:compute_score",
        "worker.reward.num_cpus": 2,
        "algorithm.disable_kl": "true",
        "trainer.device": "cpu" if tiny else "cuda",
        "trainer.val_before_train": "false",
        "trainer.save_checkpoint_path": run,
        "trainer.save_model_only": "true",
        "trainer.quiet": "true",
    }
    arguments = [f"config={folder / 'empty.yaml'}", *(f"{key}={value}" for key, value in settings.items()), *keys]
    environment = os.environ | {"WHET_BENCH_MEDIAN": str(longest / 16)}
    subprocess.run([sys.executable, "-m", "whet", "train", *arguments], check=True, env=environment, stdout=sys.stderr)


def _summary(run: Path, warm_up: int) -> dict[str, object]:
    whole = read_metrics(run / "metrics.jsonl")
    lines = whole[warm_up : len(whole) - AHEAD]
    steps = sorted(line["timing_s/step"] for line in lines)
    logged = read_lengths(run)
    lengths = sorted(logged)
    found: dict[str, object] = {
        "tokens_per_s": sum(line["perf/total_tokens"] for line in lines) / sum(steps),
        "step_s": [round(line["timing_s/step"], 2) for line in whole],
        "step_median_s": statistics.median(steps),
        "step_range_s": (steps[0], steps[-1]),
        "tokens": [line["perf/total_tokens"] for line in whole],
        "p50": lengths[len(lengths) // 2],
        "p99": lengths[len(lengths) * 99 // 100],
        "lengths": logged,
    }
    for name in ("timing_s/rollout", "timing_s/update", "timing_s/old_log_probs", "response_length/mean"):
        found[name] = statistics.mean(line.get(name, 0.0) for line in lines)
    for name in ("async/staleness_mean", "async/staleness_max", "async/learner_idle", "async/sampler_idle"):
        if name in lines[-1]:
            found[name] = statistics.mean(line[name] for line in lines)
    return found


if __name__ == "__main__":
    main()
