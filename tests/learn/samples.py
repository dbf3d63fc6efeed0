"""Samples for the tests of the learner, of the tiny models' small vocabulary."""

from __future__ import annotations

import random

from tiny_models import WORDS

from whet.types import Prompt, Sample, segments_of


def sample(prompt: Prompt, ids: list[int], mask: list[int] | None = None, score: float = 0.0, group: int = 0) -> Sample:
    """A finished response with made-up log-probs of the sampler."""
    log_probs = [-1.0 - 0.1 * (i % 7) for i in range(len(ids))]
    made = Sample(prompt, segments_of(ids, mask or [1] * len(ids)), "stop", group=group, scores={"overall": score})
    set_log_probs(made, log_probs)
    return made


def set_log_probs(sample: Sample, log_probs: list[float]) -> None:
    """Replace the sampler's log-probs."""
    rest = iter(log_probs)
    for segment in sample.segments:
        segment.log_probs = [next(rest) for _ in segment.ids]


def batch(seed: int = 0, prompts: int = 4, n: int = 3) -> list[Sample]:
    """n samples of each of a few prompts, ragged: some responses of one token, some with tool tokens inside."""
    rng = random.Random(seed)
    samples = []
    for p in range(prompts):
        prompt = Prompt(f"row:{p}", [rng.randrange(WORDS) for _ in range(rng.randint(1, 9))], "")
        for i in range(n):
            length = 1 if (p + i) % 4 == 3 else rng.randint(2, 12)
            mask = [int(t < 2 or t % 3 != 2) for t in range(length)] if i == 1 else [1] * length
            ids = [rng.randrange(WORDS) for _ in range(length)]
            samples.append(sample(prompt, ids, mask, score=rng.random(), group=p))
    return samples
