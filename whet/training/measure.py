"""Numbers about a batch and a step: lengths, scores, seconds, tokens, memory."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from whet.tracking.console import Console
from whet.types import Group, Sample

MOST_GROUPS = 256  # in one line of the timeline; of larger batches every second, third, ... group


class StepClock:
    """Seconds of each stage of one step, shown as a bar while it lasts, and when each part began and ended."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.start = time.perf_counter()
        self.seconds: dict[str, float] = {}
        self.spans: list[tuple[str, float, float]] = []  # of `perf_counter`: begin and end of each stage

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """Time the block under `timing_s/{name}`; yields the function that advances its bar."""
        begin = time.perf_counter()
        with self._console.stage(name.replace("_", " "), total) as advance:
            yield advance
        end = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + end - begin
        self.spans.append((name, begin, end))

    def metrics(self, samples: Sequence[Sample], drawn: Sequence[Sample]) -> dict[str, float]:
        """Timings and throughput; tokens are prompt and response tokens of the step's samples, drawn now or before."""
        step = time.perf_counter() - self.start
        written = sum(len(s.ids) for s in drawn)
        tokens = sum(len(s.ids) + len(s.prompt.ids) for s in samples)
        rollout = self.seconds.get("rollout", 0.0)
        return {
            **{f"timing_s/{name}": seconds for name, seconds in self.seconds.items()},
            "timing_s/step": step,
            "perf/total_tokens": tokens,
            "perf/tokens_per_s": tokens / step,
            "perf/rollout_tokens_per_s": written / rollout if rollout else 0.0,
            "perf/max_rss_gb": max_rss_gb(),
        }

    def timeline(self, step: int, groups: Sequence[Group]) -> dict[str, Any]:
        """Return a line of timeline.jsonl; times are seconds since the step began, negative for what began before."""
        now = time.perf_counter()
        stages = [[name, *(round(at - self.start, 4) for at in span)] for name, *span in self.spans]
        timed = [group for group in groups if group.times is not None and group.samples]
        stride = max(1, -(-len(timed) // MOST_GROUPS))
        return {
            "step": step,
            "began": round(time.time() - (now - self.start), 3),
            "seconds": round(now - self.start, 4),
            "stages": stages,
            "groups": [
                [group.samples[0].group, *(round(at - self.start, 4) for at in group.times or ())]
                for group in timed[::stride]
            ],
            "all_groups": len(timed),
        }


def max_rss_gb() -> float:
    """The most memory this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e9 if sys.platform == "darwin" else peak * 1024 / 1e9


def sampled_metrics(samples: Sequence[Sample]) -> dict[str, float]:
    """Mean scores and lengths of everything that a step sampled."""
    responses = [len(s.ids) for s in samples]
    prompts = [len(s.prompt.ids) for s in samples]
    return {
        **mean_scores(samples, "reward"),
        **episode_metrics(samples),
        **_earned(samples),
        **_spread("response_length", responses),
        "response_length/clip_ratio": sum(s.finish == "length" for s in samples) / len(samples),
        **_spread("prompt_length", prompts),
    }


def _earned(samples: Sequence[Sample]) -> dict[str, float]:
    """Mean total reward where segments earn some of it; {} where the score is all there is."""
    if all(segment.reward is None for sample in samples for segment in sample.segments):
        return {}
    return {"reward/total": sum(sample.reward for sample in samples) / len(samples)}


def episode_metrics(samples: Sequence[Sample]) -> dict[str, float]:
    """Turns, failures, ends and reported numbers of episodes with an environment; {} without one."""
    played = [s for s in samples if s.end is not None]
    if not played:
        return {}
    from whet.training.episode_metrics import metrics_of

    return metrics_of(played) | _spread("turns", [s.turns for s in played])


def advantage_metrics(samples: Sequence[Sample]) -> dict[str, float]:
    """The advantages of a training batch."""
    return _spread("advantage", [s.advantage for s in samples])


def correctness(samples: Sequence[Sample]) -> Callable[[Sample], float]:
    """Accuracy where the reward gives it, else verl's acc, else the score itself."""
    names = {name for s in samples for name in s.scores}
    name = next(n for n in ("accuracy", "acc", "overall") if n in names)
    return lambda s: s.score(name) or 0.0


def is_solved(score: float) -> bool:
    """Return True for the score of a right answer."""
    return score >= 1.0 - 1e-6


def solved_groups(groups: Sequence[Sequence[Sample]]) -> tuple[int, int]:
    """Count the groups that have only right answers, and those that have only answers without any score."""
    score = correctness([sample for group in groups for sample in group])
    scores = [[score(sample) for sample in group] for group in groups]
    return sum(all(map(is_solved, each)) for each in scores), sum(max(each) <= 0.0 for each in scores)


def mean_scores(samples: Sequence[Sample], prefix: str) -> dict[str, float]:
    """Mean of every score over the samples that have it, as `{prefix}/{key}`; verl's `acc` also as accuracy.

    Samples whose reward or environment failed, and episodes that report no accuracy where others do, are not right.
    """
    names = dict.fromkeys(name for s in samples for name in s.scores)
    means = {}
    for name in names:
        values = [value for s in samples if (value := s.score(name)) is not None]
        if name in ("accuracy", "acc"):
            values += [0.0 for s in samples if s.score(name) is None and (s.failure is not None or s.end)]
        means[f"{prefix}/{name}"] = sum(values) / len(values)
    if f"{prefix}/accuracy" not in means and f"{prefix}/acc" in means:
        means[f"{prefix}/accuracy"] = means[f"{prefix}/acc"]
    return means


def _spread(name: str, values: Sequence[float]) -> dict[str, float]:
    as_floats = torch.tensor(values, dtype=torch.float64)
    return {
        f"{name}/mean": float(as_floats.mean()),
        f"{name}/max": float(as_floats.max()),
        f"{name}/min": float(as_floats.min()),
    }
