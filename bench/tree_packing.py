"""Training on episodes whose chat template rewrites earlier turns: one prefix tree against separate samples.

    python bench/tree_packing.py --out results            # Qwen3-1.7B's shape with random weights, one GPU
    python bench/tree_packing.py --tiny --out results     # a tiny model on a CPU, to try the script

A turn is reasoning and an answer, and the environment observes something behind it. As with Qwen3's template, the
reasoning of a turn is dropped as soon as another turn begins: every turn is a branch. Three things are measured.

1. Seconds of forward and backward passes over all turns, in micro-batches of `--micro-batch` tokens: each turn as a
   sample of its own that shares nothing, and each episode as a prefix tree. Warm-up rounds do not count; the median of
   `--rounds` does.
2. The largest relative difference of a parameter's gradient between the two, in fp32.
3. Tokens that the native engine prefills as `--played` episodes are played, and seconds of each turn, with samples kept
   between turns and without. Here nothing is rewritten: later turns have only observations to read.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gpu_part import timed
from gpu_shapes import qwen3_1_7b, qwen3_tiny
from torch import Tensor
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from whet.learn.packing import pack
from whet.learn.partition import micro_batches
from whet.learn.scoring import score
from whet.model.fused import fuse
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.engine import NativeEngine
from whet.types import Prompt, Sample, Segment

PARTS = ["seconds", "gradient", "turns"]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Tokens of an episode's parts."""

    turns: int
    prompt: int
    reasoning: int
    answer: int
    observation: int


def main() -> None:
    """Measure, print and write `tree_packing.json`."""
    arguments = _arguments()
    device = "cuda" if torch.cuda.is_available() and not arguments.tiny else "cpu"
    config = qwen3_tiny() if arguments.tiny else qwen3_1_7b()
    sizes = Sizes(arguments.turns, arguments.prompt, arguments.reasoning, arguments.answer, arguments.observation)
    made = [_episode(sizes, config.vocab_size, seed) for seed in range(arguments.episodes)]
    result: dict[str, Any] = {"device": torch.cuda.get_device_name() if device == "cuda" else "cpu"}
    result |= {"sizes": vars(arguments) | {"out": str(arguments.out)}}
    if "seconds" in arguments.parts:
        model = _model(config, device, torch.float32 if device == "cpu" else torch.bfloat16)
        result |= _times(model, made, arguments)
        _say(result, "seconds")
        del model
    if "gradient" in arguments.parts:
        exact = _model(config, device, torch.float32)
        exact.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        result |= _difference(exact, made[0], arguments.micro_batch)
        _say(result, "gradient")
        del exact
    if "turns" in arguments.parts:
        result |= _prefilled(config, device, sizes, arguments.played)
        _say(result, "prefilled")
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "tree_packing.json").write_text(json.dumps(result, indent=1))


def _episode(sizes: Sizes, vocabulary: int, seed: int) -> tuple[Sample, list[Sample]]:
    """An episode, and its turns as samples of their own."""
    rng = random.Random(seed)

    def some(count: int) -> list[int]:
        return [rng.randrange(vocabulary) for _ in range(count)]

    prompt = Prompt(f"episode {seed}", some(sizes.prompt), "")
    history, segments, turns = list(prompt.ids), list[Segment](), list[Sample]()
    for turn in range(sizes.turns):
        reasoning, answer = some(sizes.reasoning), some(sizes.answer)
        if turn:
            segments.append(Segment(list(history), by_model=False, restart=True))
        segments.append(Segment(reasoning + answer))
        turns.append(Sample(Prompt(f"turn {turn}", list(history), ""), [Segment(reasoning + answer)], "stop"))
        history += answer + some(sizes.observation)
    return Sample(prompt, segments, "stop"), turns


def _model(config: PretrainedConfig, device: str, dtype: torch.dtype) -> PreTrainedModel:
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="whet")
    fuse(model)
    return model


def _train(model: PreTrainedModel, samples: list[Sample], micro_batch: int, share: bool) -> None:
    """Forward and backward passes; the gradient of every drawn token's log-prob is weighted differently."""
    model.zero_grad(set_to_none=True)
    model.train()
    for rows in micro_batches(samples, share, micro_batch, 1):
        log_probs_BT = score(model, [samples[i] for i in rows], 1.0, share).log_probs_BT
        weights_BT = torch.zeros(log_probs_BT.shape)
        for weights_T, i in zip(weights_BT, rows):
            mask_T = torch.tensor(samples[i].mask, dtype=torch.bool)
            drawn = torch.tensor([token for s in samples[i].segments if s.by_model for token in s.ids])
            weights_T[: len(mask_T)][mask_T] = torch.sin(drawn.float())
        (weights_BT.to(log_probs_BT) * log_probs_BT).sum().backward()


def _times(
    model: PreTrainedModel, made: list[tuple[Sample, list[Sample]]], arguments: argparse.Namespace
) -> dict[str, Any]:
    episodes, turns = [episode for episode, _ in made], [turn for _, turns in made for turn in turns]
    found: dict[str, Any] = {}
    tokens = arguments.micro_batch
    for name, samples, share in (("tree", episodes, True), ("separate", turns, False)):
        calls, train = arguments.warm_up + arguments.rounds, partial(_train, model, samples, tokens, share)
        rounds = [timed(model.device.type, train)[0] for _ in range(calls)]
        found[f"{name}_seconds_of_rounds"] = rounds[arguments.warm_up :]
        found[f"{name}_seconds"] = statistics.median(rounds[arguments.warm_up :])
        micros = micro_batches(samples, share, tokens, 1)
        found[f"{name}_tokens"] = sum(pack([samples[i] for i in rows], share).tokens for rows in micros)
    return found | {"speed_up_in_seconds": found["separate_seconds"] / found["tree_seconds"]}


def _difference(model: PreTrainedModel, made: tuple[Sample, list[Sample]], micro_batch: int) -> dict[str, Any]:
    def gradients(samples: list[Sample], share: bool) -> list[Tensor]:
        _train(model, samples, micro_batch, share)
        return [p.grad.detach().clone() for p in model.parameters() if p.grad is not None]

    episode, turns = made
    pairs = zip(gradients([episode], True), gradients(turns, False), strict=True)
    return {"gradient_difference": max(float((one - other).norm() / other.norm()) for one, other in pairs)}


def _prefilled(config: PretrainedConfig, device: str, sizes: Sizes, episodes: int) -> dict[str, Any]:
    """Play episodes on the native engine."""
    found: dict[str, Any] = {}
    for keep in (True, False):
        model = _model(config, device, torch.float32 if device == "cpu" else torch.bfloat16).eval()
        engine = NativeEngine(model, None, frozenset(), max_num_seqs=episodes)  # type: ignore[arg-type]
        play = partial(_play, engine, config.vocab_size, episodes=episodes, keep=keep, device=device)
        play(replace(sizes, turns=3))  # kernels are compiled, and graphs captured
        read, seconds = play(sizes)
        name = "kept" if keep else "not_kept"
        found |= {f"prefilled_first_turn_{name}": read[0], f"prefilled_later_turns_{name}": sum(read[1:])}
        found |= {f"prefilled_in_each_turn_{name}": read, f"prefilled_seconds_{name}": sum(seconds)}
        found |= {f"prefilled_seconds_of_each_turn_{name}": [round(each, 3) for each in seconds]}
    return found


def _play(
    engine: NativeEngine, vocabulary: int, sizes: Sizes, episodes: int, keep: bool, device: str
) -> tuple[list[int], list[float]]:
    """Return the tokens that were prefilled in each turn of all episodes, and the seconds of each turn."""
    rng, read, seconds = random.Random(sizes.turns), list[int](), list[float]()
    params = SamplingParams(max_tokens=sizes.answer, ignore_eos=True, keep=keep)

    def some(count: int) -> list[int]:
        return [rng.randrange(vocabulary) for _ in range(count)]

    starts: list[Any] = [Prompt(str(i), some(sizes.prompt), "") for i in range(episodes)]
    for _ in range(sizes.turns):
        before = engine.prefilled_tokens
        took, samples = timed(device, partial(engine.generate, starts, params, range(episodes)))
        read.append(engine.prefilled_tokens - before)
        seconds.append(took)
        starts = [
            replace(sample, segments=[*sample.segments, Segment(some(sizes.observation), by_model=False)])
            for sample in samples
        ]
    return read, seconds


def _say(result: dict[str, Any], part: str) -> None:
    print({name: value for name, value in result.items() if part in name or "tokens" in name}, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    for name, default in (
        *(("turns", 20), ("episodes", 4), ("prompt", 512), ("reasoning", 192), ("answer", 64), ("observation", 192)),
        *(("micro-batch", 12288), ("warm-up", 1), ("rounds", 3), ("played", 16)),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


if __name__ == "__main__":
    main()
