"""Share of a CPU training step that writing samples, token records and the timeline takes.

Two short runs of `whet train`: the quickstart (0.13 million parameters, steps of a few tenths of a second, where
fixed costs show most), and a random model of about 20 million parameters with responses of 128 tokens. Calls of the
tracker, and reading the recorded tokens, are timed within the run, and divided by the seconds of its steps.

    python bench/logging_cost.py [--steps 8] [--all]        --all records every token (trainer.log_token_details)
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prompts import problems

SECONDS: defaultdict[str, float] = defaultdict(float)
BUSY: defaultdict[str, float] = defaultdict(float)  # of this thread's processor: what a loaded machine does not inflate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--all", action="store_true")
    arguments = parser.parse_args()
    _time_calls()
    with tempfile.TemporaryDirectory() as folder:
        for name, keys in (("quickstart", {}), ("20M", _larger(Path(folder), arguments.steps))):
            run = Path(folder) / f"run-{name}"
            given = {
                "trainer.max_steps": arguments.steps,
                "trainer.val_before_train": "false",
                "trainer.val_freq": -1,
                "trainer.save_freq": -1,
                "trainer.log_token_details": str(arguments.all).lower(),
                "trainer.save_checkpoint_path": run,
                **keys,
            }
            _report(name, run, given)


def _time_calls() -> None:
    from whet.learn.learner import LocalLearner
    from whet.tracking.tracker import Tracker

    for owner, names in ((Tracker, ("samples", "tokens", "timeline")), (LocalLearner, ("recorded",))):
        for name in names:
            setattr(owner, name, _timed(name, getattr(owner, name)))


def _timed(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        begun, busy = time.perf_counter(), time.thread_time()
        try:
            return method(*args, **kwargs)
        finally:
            SECONDS[name] += time.perf_counter() - begun
            BUSY[name] += time.thread_time() - busy

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

    SECONDS.clear()
    BUSY.clear()
    begun = time.process_time()
    if whet(["train", *(f"{key}={value}" for key, value in keys.items())]):
        raise SystemExit(f"{name}: the run failed")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = sum(line["timing_s/step"] for line in lines)
    size = sum(file.stat().st_size for file in (run / "tokens").iterdir())
    print(f"\n{name}: {len(lines)} steps, {steps / len(lines):.3f} s each, token records {size / 1000:.1f} kB")
    print(f"  processor time of the process: {time.process_time() - begun:.2f} s, start and end of the run included")
    for part in SECONDS:
        wall, busy = (1000 * each[part] / len(lines) for each in (SECONDS, BUSY))
        print(f"  {part:<10} {wall:7.2f} ms a step  {SECONDS[part] / steps:7.2%}   {busy:6.2f} ms of the processor")
    print(f"  token records and timeline: {sum(SECONDS[p] for p in ('tokens', 'recorded', 'timeline')) / steps:.2%}")


if __name__ == "__main__":
    main()
