"""The simulator against real runs on a CPU, synchronous and asynchronous.

1. Measure what decoding and updating cost, each alone: the native engine with fixed lengths, the learner with made-up
   samples.
2. Train the quickstart with each bound of `--staleness` and note the seconds of its steps and the lengths of its
   responses.
3. Simulate those steps from the costs and the lengths, and compare. Sampling and learning take turns in this process.

    python bench/simulator_cpu.py [--steps 10] [--staleness 0 1 2] [--rounds 3] [--processor-time]

`--processor-time` counts the process's own seconds instead of the clock's, for a machine that others use too.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

WARM_UP = 2  # steps that do not count, besides those in which sampling gets ahead


def main() -> None:
    arguments = _arguments()
    if arguments.processor_time:
        time.perf_counter = time.process_time  # what the run's own stages are timed with
    import torch

    torch.set_num_threads(1)
    from whet.config import load_config

    examples = Path(__file__).parent.parent / "examples"
    keys = [
        f"config={examples / 'quickstart.yaml'}",
        f"trainer.max_steps={arguments.steps}",
        "trainer.val_before_train=false",
        "trainer.val_freq=-1",
        "trainer.device=cpu",
        "trainer.quiet=true",
        *arguments.keys,
    ]
    config, found = load_config(keys), dict[int, list[float]]()
    for _ in range(arguments.rounds):
        decode, update, rest = _decode_cost(config), _update_cost(config), None
        print(
            f"decode: {1e3 * decode[0]:.3f} ms a step, {1e6 * decode[1]:.2f} us a sequence, "
            f"{1e3 * decode[2]:.3f} ms a sample, {1e3 * decode[3]:.2f} ms a pass over prompts; "
            f"update: {1e3 * update[0]:.2f} ms, {1e6 * update[1]:.2f} us a token"
        )
        for bound in arguments.staleness:
            with tempfile.TemporaryDirectory() as folder:
                rest, off = _compare(keys, bound, Path(folder) / "run", decode, update, rest)
            found.setdefault(bound, []).append(off)
    for bound, offs in found.items():
        print(f"max_staleness={bound}: simulated / measured - 1, median {statistics.median(offs):+.1%}")


def _compare(
    keys: list[str],
    bound: int,
    run: Path,
    decode: tuple[float, float, float, float],
    update: tuple[float, float],
    rest: float | None,
) -> tuple[float, float]:
    """Train and simulate with a bound; return what a step takes besides sampling and updating, and how much is missing.

    `rest` is the former of the first run, which is a synchronous one.
    """
    from whet.cli import main as whet
    from whet.config import load_config
    from whet.planning.decoding import DecodeCost
    from whet.planning.lengths import read_lengths
    from whet.planning.simulate import Scenario, UpdateCost, simulate
    from whet.tracking import read_metrics

    keys = [*keys, f"trainer.max_staleness={bound}", f"trainer.save_checkpoint_path={run}"]
    if code := whet(["train", *keys]):
        sys.exit(code)
    config, lines = load_config(keys), read_metrics(run / "metrics.jsonl")
    if rest is None:
        rest = statistics.median(
            line["timing_s/step"] - line["timing_s/rollout"] - line["timing_s/update"] for line in lines[WARM_UP:]
        )
    prompt = statistics.mean(line["prompt_length/mean"] for line in lines)
    scenario = Scenario(
        engines=1,
        decode=DecodeCost(decode[0], decode[1], 0.0, prefill=decode[2] / prompt, reading=decode[3]),
        update=UpdateCost(update[0] + rest, update[1]),
        batch=config.data.rollout_batch_size,
        samples=config.worker.rollout.n,
        slots=config.worker.rollout.max_num_seqs or 64,
        prompt=prompt,
        staleness=bound,
        ahead=config.trainer.steps_ahead,
        partial=bound > 0,
    )
    counted = slice(WARM_UP + bound, len(lines) - bound)  # at the end nothing is sampled ahead
    simulated = statistics.mean(simulate(scenario, read_lengths(run), len(lines)).steps[counted])
    measured = statistics.mean(line["timing_s/step"] for line in lines[counted])
    print(
        f"max_staleness={bound}: measured {measured:.3f} s a step, simulated {simulated:.3f}: "
        f"{simulated / measured - 1:+.1%}; {_parts(lines[counted])}",
        flush=True,
    )
    return rest, simulated / measured - 1


def _parts(lines: list[dict[str, float]]) -> str:
    """Return the mean seconds of the parts of these steps."""
    names = {name: f"timing_s/{name}" for name in ("rollout", "reward", "update", "weights", "step")}
    return ", ".join(
        f"{name} {statistics.mean(line.get(key, 0.0) for line in lines):.3f}" for name, key in names.items()
    )


def _decode_cost(config) -> tuple[float, float, float, float]:  # type: ignore[no-untyped-def]
    """Seconds of a step, of a sequence in it, of a sample and of a pass that reads prompts, by least squares."""
    import torch

    from whet.assets import resolve_model
    from whet.model.load import end_ids, load_tokenizer
    from whet.rollout.engine import SamplingParams
    from whet.rollout.spec import Opening, open_engine
    from whet.training import parts
    from whet.training.device import choose_placement
    from whet.types import Prompt

    path = str(resolve_model(config.worker.actor.model.model_path, lambda _: None))
    model = parts.load_weights(path, config, choose_placement(config))
    tokenizer = load_tokenizer(path)
    engine = open_engine(Opening(config, model, tokenizer, end_ids(path, tokenizer)))
    rows, seconds = [], []
    for groups in (1, 4, 16, 32):
        prompts = [Prompt(str(i), [3 + (i * j) % 8 for j in range(18)], "") for i in range(groups)]
        for tokens in (1, 2, 8, 16):
            params = SamplingParams(n=8, max_tokens=tokens, ignore_eos=True)
            rows.append([tokens, tokens * groups * 8, groups * 8, 1])
            seconds.append(_best(lambda prompts=prompts, params=params: engine.generate(prompts, params)))
    weights = 1 / torch.tensor(seconds, dtype=torch.float64)
    scaled = torch.tensor(rows, dtype=torch.float64) * weights[:, None]
    found = torch.linalg.lstsq(scaled, torch.ones(len(rows), 1, dtype=torch.float64)).solution.flatten()
    base, per_sequence, per_sample, apart = (max(0.0, value) for value in found.tolist())
    return base, per_sequence, per_sample, apart + base  # the pass that reads a prompt draws the first token too


def _update_cost(config) -> tuple[float, float]:  # type: ignore[no-untyped-def]
    """Seconds of an update, and of a packed token in it, from two sizes."""
    from whet.assets import resolve_model
    from whet.supervised.likelihood import NegativeLogLikelihood
    from whet.training import parts
    from whet.training.device import choose_placement
    from whet.types import Prompt, Sample

    path = str(resolve_model(config.worker.actor.model.model_path, lambda _: None))
    learner = parts.open_learner(config, parts.load_weights(path, config, choose_placement(config)), 100)
    points = []
    for groups, length in ((8, 8), (32, 8)):
        samples = []
        for i in range(groups):
            prompt = Prompt(str(i), [3 + (i * j) % 8 for j in range(18)], "")
            samples += [Sample.written(prompt, [5] * length, [0.0] * length, "stop", index=k) for k in range(8)]
        objective = NegativeLogLikelihood.of(samples, config)
        took = _best(lambda s=samples, o=objective: learner.update(s, o, 1, len(s)))
        points.append((groups * (18 + 8 * length), took))
    (few, short), (many, long) = points
    per_token = max(0.0, (long - short) / (many - few))
    return max(0.0, short - per_token * few), per_token


def _best(work: Callable[[], object]) -> float:
    """Median seconds of five calls after one that warms up."""
    work()
    rounds = []
    for _ in range(5):
        begin = time.perf_counter()
        work()
        rounds.append(time.perf_counter() - begin)
    return statistics.median(rounds)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--staleness", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processor-time", action="store_true")
    parser.add_argument("keys", nargs="*", help="further keys of the config")
    return parser.parse_args()


if __name__ == "__main__":
    main()
