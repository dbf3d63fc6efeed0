"""Run a reward over samples and measure it: time of every call, agreement, differences, and hacks that are paid."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from whet.evals.rewards.hacks import hacks_for
from whet.rewards.scorer import RewardScorer
from whet.training.measure import correctness, is_solved
from whet.types import Prompt, Sample

BATCH = 64  # samples of one call, for a function that takes batches
PERCENTILES = (50, 90, 95, 99)
SAME = 1e-9  # by which scores of two rewards may differ


@dataclass(frozen=True, slots=True)
class Timed:
    """Scores of samples (in the samples themselves) and how long they took."""

    seconds: float
    latencies: list[float]  # seconds of each call, without waiting for a free worker
    call_size: int

    def summary(self, samples: int) -> dict[str, Any]:
        """Throughput and percentiles of latency."""
        ordered = sorted(self.latencies)
        times = {f"p{each}_ms": _ms(ordered[_rank(len(ordered), each)]) for each in PERCENTILES} if ordered else {}
        longest = {"max_ms": _ms(ordered[-1])} if ordered else {}
        rate = round(samples / self.seconds, 2) if self.seconds else 0.0
        return {"samples": samples, "seconds": round(self.seconds, 4), "per_second": rate, **times, **longest}


def score_timed(scorer: RewardScorer, samples: list[Sample], workers: int) -> Timed:
    """Score every sample with `workers` calls at once, and time each call."""
    size = BATCH if scorer.scores_batches() else 1
    calls = [samples[start : start + size] for start in range(0, len(samples), size)]
    if calls:  # workers import what they need at their first call
        scorer.score([replace(calls[0][0], scores={}) for _ in range(workers)])
    began = time.perf_counter()
    latencies = asyncio.run(_score(scorer, calls, workers))
    return Timed(time.perf_counter() - began, latencies, size)


async def _score(scorer: RewardScorer, calls: list[list[Sample]], workers: int) -> list[float]:
    places = asyncio.Semaphore(workers)

    async def one(call: list[Sample]) -> float:
        async with places:
            began = time.perf_counter()
            await scorer.score_async(call)
            return time.perf_counter() - began

    return list(await asyncio.gather(*(one(call) for call in calls)))


def agreement(samples: Sequence[Sample], labels: Sequence[bool | None]) -> dict[str, Any]:
    """Compare what the reward takes for right with labels; rows that it pays or refuses wrongly are listed."""
    known = [(sample, label) for sample, label in zip(samples, labels) if label is not None]
    if not known:
        return {"labelled": 0}
    right = correctness([sample for sample, _ in known])
    verdicts = [(sample, is_solved(right(sample)), label) for sample, label in known]
    same = sum(paid == label for _, paid, label in verdicts)
    return {
        "labelled": len(verdicts),
        "agreement": round(same / len(verdicts), 6),
        "false_right": [_place(sample) for sample, paid, label in verdicts if paid and not label],
        "false_wrong": [_place(sample) for sample, paid, label in verdicts if label and not paid],
    }


def differences(first: Sequence[Sample], second: Sequence[Sample]) -> dict[str, Any]:
    """Samples to which two rewards give different scores."""
    rows = [
        {**_place(one), "first": one.scores["overall"], "second": other.scores["overall"]}
        for one, other in zip(first, second)
        if abs(one.scores["overall"] - other.scores["overall"]) > SAME
    ]
    return {"compared": len(first), "differ": len(rows), "rows": rows}


def planted(scorer: RewardScorer, prompts: Sequence[Prompt], workers: int) -> list[dict[str, Any]]:
    """Score the hacks of every row.

    `paid` counts rows whose hack is right to the reward; `partly` those that earn more than an empty response.
    """
    samples: list[tuple[str, Sample]] = []
    for prompt in prompts:
        hacks = hacks_for(prompt.text, prompt.answer)
        samples += [
            (name, Sample.written(prompt, [0] * len(text.split()), [], "stop", text=text))
            for name, text in hacks.items()
        ]
    score_timed(scorer, [sample for _, sample in samples], workers)
    scorer.require_scores([sample for _, sample in samples], "planted hacks")
    right = correctness([sample for _, sample in samples])
    silence = {id(sample.prompt): sample.scores["overall"] for name, sample in samples if name == "empty answer"}
    found: dict[str, dict[str, Any]] = {}
    for name, sample in samples:
        entry = found.setdefault(name, {"hack": name, "rows": 0, "paid": 0, "partly": 0, "failed": 0, "paid_rows": []})
        entry["rows"] += 1
        if sample.failure is not None:
            entry["failed"] += 1
        elif is_solved(right(sample)):
            entry["paid"] += 1
            entry["paid_rows"].append(sample.prompt.uid)
        elif sample.scores["overall"] > silence[id(sample.prompt)] + SAME:
            entry["partly"] += 1
    return list(found.values())


def _place(sample: Sample) -> dict[str, Any]:
    return {"row": sample.prompt.uid, "index": sample.index}


def _rank(count: int, percentile: int) -> int:
    """Position of a percentile by the nearest rank."""
    return max(0, -(-count * percentile // 100) - 1)


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 3)
