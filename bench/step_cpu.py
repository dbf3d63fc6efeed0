"""One GRPO step on a CPU: whet against TRL's GRPOTrainer, same model, prompts, reward and sizes, in one run.

SmolLM2-135M, 8 prompts × 4 samples, up to 64 new tokens, fp32, one optimizer step a rollout. Each side runs in a
process of its own (TRL in its own virtual environment, made on first use) and reports the seconds of each step and the
process's peak memory. The first step of each warms up and does not count. TRL runs twice: with gradient checkpointing,
its default, and without, which is faster and takes more memory.

    python bench/step_cpu.py [--model FOLDER] [--steps 3] [--trl-venv DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from prompts import problems

HERE = Path(__file__).parent
PROMPTS, SAMPLES, NEW_TOKENS = 8, 4, 64


def main() -> None:
    arguments = _arguments()
    from whet.assets import resolve_model

    model = str(Path(resolve_model(arguments.model, print)).absolute())
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        rows = [{"prompt": text, "answer": ""} for text in problems(PROMPTS * (arguments.steps + 1))]
        (work / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        results = {
            "whet": _run_whet(work, model, arguments.steps + 1),
        }
        for settings in ("default", "fast"):
            results[f"trl {settings}"] = _run_trl(work, model, arguments.steps + 1, arguments.trl_venv, settings)
    ours, our_memory = statistics.median(results["whet"][0]), results["whet"][1]
    for name, (seconds, gigabytes) in results.items():
        each, median = ", ".join(f"{s:.1f}" for s in seconds), statistics.median(seconds)
        print(f"{name:<12} {median:6.1f} s a step ({each}), {gigabytes:.2f} GB", end="")
        print(
            ""
            if name == "whet"
            else f": whet is {median / ours:.2f}x faster, {our_memory / gigabytes:.2f} of the memory"
        )


def _run_whet(work: Path, model: str, steps: int) -> tuple[list[float], float]:
    keys = {
        "data.train_files": work / "train.jsonl",
        "data.max_prompt_length": 192,
        "data.max_response_length": NEW_TOKENS,
        "data.rollout_batch_size": PROMPTS,
        "data.shuffle": "false",
        "worker.actor.model.model_path": model,
        "worker.actor.model.enable_gradient_checkpointing": "false",
        "worker.actor.global_batch_size": PROMPTS,
        "worker.actor.micro_batch_tokens": 1024,
        "worker.rollout.n": SAMPLES,
        "worker.reward.reward_function": f"{HERE / 'step_cpu_reward.py'}:compute_score",
        "algorithm.disable_kl": "true",
        "trainer.max_steps": steps,
        "trainer.save_checkpoint_path": work / "run",
        "trainer.save_model_only": "true",
    }
    (work / "empty.yaml").write_text("{}\n")
    command = [sys.executable, "-m", "whet.cli", "train", f"config={work / 'empty.yaml'}"]
    _run([*command, *(f"{name}={value}" for name, value in keys.items())])
    lines = [json.loads(line) for line in (work / "run" / "metrics.jsonl").read_text().splitlines()]
    for line in lines[1:]:
        print("whet step:", {k.removeprefix("timing_s/"): round(v, 2) for k, v in line.items() if "timing_s" in k})
    return [line["timing_s/step"] for line in lines[1:]], lines[-1]["perf/max_rss_gb"]


def _run_trl(work: Path, model: str, steps: int, venv: Path, settings: str) -> tuple[list[float], float]:
    python = venv / "bin" / "python"
    if not python.exists():
        _run([sys.executable, "-m", "venv", str(venv)])
        import torch

        pin = f"torch=={torch.__version__.partition('+')[0]}"
        _run([str(python), "-m", "pip", "install", "-q", pin])
        _run([str(python), "-m", "pip", "install", "-q", "trl"])
    out = work / "trl.json"
    sizes = [str(n) for n in (steps, PROMPTS, SAMPLES, NEW_TOKENS)]
    _run([str(python), str(HERE / "step_cpu_trl.py"), model, str(work / "train.jsonl"), str(out), *sizes, settings])
    result = json.loads(out.read_text())
    return result["seconds"][1:], result["peak_gb"]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, env={**os.environ, "TQDM_DISABLE": "1"})
    if done.returncode:
        sys.exit(f"{command[0]} failed with {done.returncode}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="whet/smollm2")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--trl-venv", type=Path, default=HERE / "results" / "trl-venv")
    return parser.parse_args()


if __name__ == "__main__":
    main()
