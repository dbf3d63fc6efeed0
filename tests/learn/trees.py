"""Random episodes for the tests of packing: samples that share beginnings, and branches that were written anew."""

from __future__ import annotations

import random

from learn.samples import set_log_probs
from tiny_models import WORDS

from whet.types import Prompt, Sample, Segment


def episode(prompt: Prompt, rng: random.Random, turns: int, group: int = 0, split: float = 0.5) -> Sample:
    """An episode in which answers follow turns; now and then a template drops the first token of every turn so far."""
    history, segments = list(prompt.ids), list[Segment]()
    for turn in range(turns):
        drawn = [rng.randrange(3) for _ in range(rng.randint(1, 5))]  # few words: other samples draw the same
        segments.append(Segment(drawn, True))
        if turn == turns - 1 and rng.random() < 0.7:
            break
        answer = [rng.randrange(WORDS - 3, WORDS) for _ in range(rng.randint(1, 3))]
        if rng.random() < split:
            history += drawn[1:] + answer
            segments.append(Segment(list(history), False, restart=True))
        else:
            history += drawn + answer
            segments.append(Segment(answer, False))
    made = Sample(prompt, segments, "stop", group=group, scores={"overall": rng.random()})
    set_log_probs(made, [-1.0 - 0.1 * (i % 7) for i in range(len(made.ids))])
    return made


def episodes(seed: int, prompts: int = 3, n: int = 3) -> list[Sample]:
    """n episodes of each of a few prompts, some of which begin alike."""
    rng = random.Random(seed)
    common = [rng.randrange(WORDS) for _ in range(4)]
    made = []
    for p in range(prompts):
        prompt = Prompt(f"row:{p}", common[: rng.randint(1, 4)] + [rng.randrange(WORDS) for _ in range(3)], "")
        made += [episode(prompt, rng, rng.randint(1, 6), group=p) for _ in range(n)]
    return made


def apart(samples: list[Sample]) -> list[list[tuple[Sample, list[int]]]]:
    """Each branch of each sample as a sample of its own, and where its drawn tokens lie in the whole response."""
    found = []
    for sample in samples:
        parts, begin, at = [], 0, 0
        for end in [i for i, s in enumerate(sample.segments) if s.restart] + [len(sample.segments)]:
            segments = sample.segments[begin:end]
            prompt = sample.prompt
            if begin:
                prompt, segments = Prompt("anew", segments[0].ids, ""), segments[1:]
                at += len(prompt.ids)
            length = sum(len(s.ids) for s in segments)
            if length:
                parts.append((Sample(prompt, segments, "stop"), list(range(at, at + length))))
            at, begin = at + length, end
        found.append(parts)
    return found
