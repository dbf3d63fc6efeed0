"""Share of a CPU training step that writing samples, token records, the timeline and metrics takes.

Two short runs of `whet train`: the quickstart (0.13 million parameters, steps of a few tenths of a second, where
fixed costs show most), and a random model of about 20 million parameters with responses of 128 tokens. Calls of the
tracker, and reading the recorded tokens, are timed within the run, and divided by the time of its steps: both in
processor time of the process, which a busy machine does not inflate. The first step, which loads libraries, does not
count.

    python bench/logging_cost.py [--steps 8] [--only quickstart] [--all]

--all records every token (trainer.log_token_details).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prompts import problems

CALLS: Counter[str] = Counter()
SECONDS: defaultdict[str, float] = defaultdict(float)
BUSY: defaultdict[str, float] = defaultdict(float)  # processor time of the process
STEP = "train_step"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", choices=("quickstart", "20M"))
    arguments = parser.parse_args()
    _time_calls()
    with tempfile.TemporaryDirectory() as folder:
        runs = {"quickstart": dict, "20M": lambda: _larger(Path(folder), arguments.steps)}
        for name, more in runs.items():
            if arguments.only not in (None, name):
                continue
            run = Path(folder) / f"run-{name}"
            given = {
                "trainer.max_steps": arguments.steps,
                "trainer.val_before_train": "false",
                "trainer.val_freq": -1,
                "trainer.save_freq": -1,
                "trainer.log_token_details": str(arguments.all).lower(),
                "trainer.save_checkpoint_path": run,
                **more(),
            }
            _report(name, run, given)


def _time_calls() -> None:
    from whet.learn.learner import LocalLearner
    from whet.tracking.tracker import Tracker
    from whet.training.trainer import Trainer

    parts = ((Tracker, ("samples", "tokens", "timeline", "log")), (LocalLearner, ("recorded",)), (Trainer, (STEP,)))
    for owner, names in parts:
        for name in names:
            setattr(owner, name, _timed(name, getattr(owner, name)))


def _timed(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        begun, busy = time.perf_counter(), time.process_time()
        try:
            return method(*args, **kwargs)
        finally:
            CALLS[name] += 1
            if CALLS[name] > 1:
                SECONDS[name] += time.perf_counter() - begun
                BUSY[name] += time.process_time() - busy

    return call


def _larger(work: Path, steps: int) -> dict[str, Any]:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from whet.assets import resolve_model
    from whet.model.load import load_tokenizer

    tokenizer = load_tokenizer(resolve_model("whet/quickstart", print), False)
    config = Qwen2Config(
        vocab_size=len(tokenizer) + 8,
        hidden_size=512,
        intermediate_size=1408,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=512,
    )
    Qwen2ForCausalLM(config).save_pretrained(work / "model")
    tokenizer.save_pretrained(work / "model")
    rows = [{"prompt": text, "answer": ""} for text in problems(8 * steps)]
    (work / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (work / "empty.yaml").write_text("{}\n")
    return {
        "config": work / "empty.yaml",
        "data.train_files": work / "train.jsonl",
        "data.max_prompt_length": 384,
        "data.max_response_length": 128,
        "data.rollout_batch_size": 8,
        "worker.actor.model.model_path": work / "model",
        "worker.actor.global_batch_size": 8,
        "worker.rollout.n": 4,
        "worker.reward.reward_function": f"{Path(__file__).parent / 'step_cpu_reward.py'}:compute_score",
        "algorithm.disable_kl": "true",
    }


def _report(name: str, run: Path, keys: dict[str, Any]) -> None:
    from whet.cli import main as whet

    CALLS.clear()
    SECONDS.clear()
    BUSY.clear()
    if whet(["train", *(f"{key}={value}" for key, value in keys.items())]):
        raise SystemExit(f"{name}: the run failed")
    steps = CALLS[STEP] - 1
    size = sum(file.stat().st_size for file in (run / "tokens").iterdir())
    print(f"\n{name}: {steps} steps, processor {BUSY[STEP] / steps:.3f} s each ({SECONDS[STEP] / steps:.3f} s of the")
    print(f"  clock), token records {size / 1000:.1f} kB")
    parts = [part for part in BUSY if part != STEP]
    for part in parts:
        wall, busy = (1000 * each[part] / steps for each in (SECONDS, BUSY))
        print(f"  {part:<10} processor {busy:6.2f} ms a step  {BUSY[part] / BUSY[STEP]:6.2%}   clock {wall:7.2f} ms")
    print(f"  all logging: {sum(BUSY[part] for part in parts) / BUSY[STEP]:.2%} of a step's processor time", flush=True)


if __name__ == "__main__":
    main()
