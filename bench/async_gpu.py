"""Synchronous against asynchronous training on one GPU, with lengths of a long tail: tokens trained a second.

    python bench/async_gpu.py                        # Qwen3-1.7B's shape, 64 prompts x 8, up to 4,000 tokens
    python bench/async_gpu.py --tiny --steps 6       # the same lines on a CPU, in a minute

Writes a model of random weights, trains it by `whet train` once for each setting (see async_engine.py for the lengths)
and prints a line of JSON for each: tokens a second over the steps behind `--warm-up`, the parts of a step, what waited,
and the 50th and 99th percentile of lengths. Every setting trains on the same prompts.
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
}


def main() -> None:
    """Train with every setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="a tiny model and short responses, for a CPU")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warm-up", type=int, default=3)
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
            _train(folder, run, args.tiny, [f"trainer.max_steps={args.steps}", *SETTINGS[name], *args.keys])
            line = {"setting": name, **_summary(run, args.warm_up), "wall_s": time.time() - begun}
            print(json.dumps(line), flush=True)
            if args.out is not None:
                with args.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")


def _train(folder: Path, run: Path, tiny: bool, keys: list[str]) -> None:
    quickstart = builtin("whet/quickstart", say=print)
    sizes = (8, 64, 96) if tiny else (64, 512, 4000)
    settings = {
        "data.train_files": quickstart / "train.jsonl",
        "data.prompt_key": "problem",
        "data.max_prompt_length": 64,
        "data.max_response_length": sizes[2],
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
    environment = os.environ | ({"WHET_BENCH_MEDIAN": "10"} if tiny else {})
    subprocess.run([sys.executable, "-m", "whet", "train", *arguments], check=True, env=environment, stdout=sys.stderr)


def _summary(run: Path, warm_up: int) -> dict[str, object]:
    import pyarrow.parquet as parquet

    lines = [line for line in read_metrics(run / "metrics.jsonl") if line["step"] > warm_up]
    seconds = sum(line["timing_s/step"] for line in lines)
    tables = [parquet.read_table(path) for path in sorted((run / "samples").glob("train_*.parquet"))]
    lengths = sorted(length for table in tables for length in table.column("length").to_pylist())
    found: dict[str, object] = {
        "tokens_per_s": sum(line["perf/total_tokens"] for line in lines) / seconds,
        "step_s": [round(line["timing_s/step"], 2) for line in lines],
        "p50": lengths[len(lengths) // 2] if lengths else None,
        "p99": lengths[len(lengths) * 99 // 100] if lengths else None,
    }
    for name in ("timing_s/rollout", "timing_s/update", "timing_s/old_log_probs", "response_length/mean"):
        found[name] = statistics.mean(line.get(name, 0.0) for line in lines)
    for name in ("async/staleness_mean", "async/learner_idle", "async/sampler_idle"):
        if name in lines[-1]:
            found[name] = statistics.mean(line[name] for line in lines)
    return found


if __name__ == "__main__":
    main()
