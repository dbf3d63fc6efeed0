"""Sampling and scoring of one step at once, against each alone, with a reward that sleeps.

    python bench/overlap.py [--sleep 0.25] [--workers 32] [--slots 16] [--tokens 128] [--rounds 5]

The quickstart's model samples 32 prompts × 8 responses of a fixed length through a few slots, so that groups finish one
after the other, as responses of different lengths do. The reward sleeps for every sample in one of `--workers`
processes. In each round, in turn: sampling alone (a reward that does not sleep), scoring alone (the same samples
again), and both through the collector. Prints medians, and the time of both over
max(sampling, scoring) + one sleep, which no schedule can be below by more than that sleep.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from whet.config import check_config, load_config
from whet.tracking.console import Console
from whet.training.job import open_trainer
from whet.training.measure import StepClock
from whet.training.trainer import Trainer

PROMPTS, SAMPLES = 32, 8
REWARD = """
import time
def compute_score(reward_input, seconds):
    time.sleep(seconds)
    return {"overall": float(reward_input["response_length"])}
"""


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        quick = _trainer(Path(place) / "quick", arguments, 0.0, stack)
        slow = _trainer(Path(place) / "slow", arguments, arguments.sleep, stack)
        times: dict[str, list[float]] = {"sampling": [], "scoring": [], "both": []}
        for round_ in range(arguments.rounds + 1):
            sampling, _ = _collect(quick)
            both, samples = _collect(slow)
            begin = time.perf_counter()
            slow.rollouts.score(samples)
            scoring = time.perf_counter() - begin
            if round_:  # the first starts the workers
                for name, seconds in zip(times, (sampling, scoring, both)):
                    times[name].append(seconds)
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, values in times.items():
        print(f"{name:<9} {medians[name]:6.2f} s ({', '.join(f'{value:.2f}' for value in values)})")
    bound = max(medians["sampling"], medians["scoring"])
    one_by_one = medians["sampling"] + medians["scoring"]
    print(f"both / (max + one sleep) {medians['both'] / (bound + arguments.sleep):.2f}", end=", ")
    print(f"both / max {medians['both'] / bound:.2f}, one after the other / both {one_by_one / medians['both']:.2f}")


def _trainer(folder: Path, arguments: argparse.Namespace, sleep: float, stack: ExitStack) -> Trainer:
    folder.mkdir()
    (folder / "reward.py").write_text(REWARD)
    keys = {
        "config": Path(__file__).parents[1] / "examples" / "quickstart.yaml",
        "data.rollout_batch_size": PROMPTS,
        "data.max_response_length": arguments.tokens,
        "worker.rollout.n": SAMPLES,
        "worker.rollout.max_num_seqs": arguments.slots,
        "worker.rollout.ignore_eos": "true",
        "worker.actor.global_batch_size": PROMPTS,
        "worker.reward.reward_function": f"{folder}/reward.py:compute_score",
        "worker.reward.reward_function_kwargs": f"{{seconds: {sleep}}}",
        "worker.reward.num_cpus": arguments.workers,
        "trainer.logger": "[file]",
        "trainer.quiet": "true",
        "trainer.save_checkpoint_path": folder / "run",
    }
    config = load_config([f"{key}={value}" for key, value in keys.items()])
    check_config(config)
    trainer = open_trainer(config, Console(quiet=True), stack)
    trainer.restore()
    return trainer


def _collect(trainer: Trainer) -> tuple[float, list]:
    """Seconds of the part of a step before the update, and its samples."""
    clock = StepClock(trainer.console)
    batch = trainer.batches.make(trainer.config, clock)
    return clock.seconds["rollout"] + clock.seconds["reward"], batch.samples


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sleep", type=float, default=0.25)
    parser.add_argument("--workers", type=int, default=32)
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
