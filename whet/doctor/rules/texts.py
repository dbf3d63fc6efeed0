"""Rules about the texts of samples: repeated text, one text for every prompt, groups that are all alike."""

from __future__ import annotations

import math
import zlib
from collections import Counter, defaultdict
from collections.abc import Sequence

from whet.doctor.findings import Finding
from whet.doctor.samples import Row, RunSamples

LEAST = 16  # samples that a rule needs
REPEATED, LONG = 0.12, 200  # bytes of a compressed text for each of its own, and characters of a text that is judged
SHARE = 0.5
ANSWERS = 4  # different ones that a text has the highest reward for


def repeated(samples: RunSamples) -> Finding | None:
    """Find responses that say the same again and again."""
    texts = [str(row.get("response") or "") for row in samples.last]
    long = [text for text in texts if len(text) >= LONG]
    if len(texts) < LEAST or len(long) < SHARE * len(texts):
        return None
    loops = [text for text in long if len(zlib.compress(text.encode("utf-8", "replace"))) < REPEATED * len(text)]
    before = [str(row.get("response") or "") for rows in list(samples.first.values())[:1] for row in rows]
    earlier = sum(
        len(zlib.compress(t.encode("utf-8", "replace"))) < REPEATED * len(t) for t in before if len(t) >= LONG
    )
    if len(loops) <= SHARE * len(texts) or (before and earlier > SHARE * len(before)):
        return None
    return Finding(
        "repetition",
        samples.last_step,
        f"{len(loops) / len(texts):.0%} of the responses of step {samples.last_step} repeat themselves ({earlier} of "
        f"{len(before)} did at first), such as {loops[0][:80]!r}: length or single words are rewarded, or the end "
        "token is never sampled. Look at the reward function, add a penalty for overlong responses, or lower the "
        "learning rate.",
    )


def same_texts(samples: RunSamples) -> Finding | None:
    """Find texts that score for prompts with different answers: a sign of an exploited reward.

    Episodes are left out: the same action may be right in different games.
    """
    rows = [row for row in samples.last if row.get("reward") is not None and row.get("response")]
    rows = [row for row in rows if (row.get("turns") or 1) == 1]
    if len(rows) < LEAST or len({str(row.get("answer")) for row in rows}) < ANSWERS:
        return None
    best = max(row["reward"] for row in rows)
    top = [(" ".join(str(row["response"]).split()), str(row.get("answer"))) for row in rows if row["reward"] == best]
    answers: defaultdict[str, set[str]] = defaultdict(set)
    for text, answer in top:
        answers[text].add(answer)
    counts = Counter(text for text, _ in top if len(answers[text]) >= ANSWERS)
    if best <= 0 or sum(counts.values()) < SHARE * len(rows) or not _mean(rows) > _mean(_first(samples)):
        return None  # a reward that has not risen is no longer earned, rather than exploited
    text, count = counts.most_common(1)[0]
    return Finding(
        "exploited",
        samples.last_step,
        f"in step {samples.last_step} {sum(counts.values())} of {len(rows)} responses have the highest reward "
        f"({best:.3g}) for a text that prompts with other answers share, such as {text[:80]!r} ({count} times, for "
        f"{len(answers[text])} answers): the reward function can be satisfied without an answer. Score that text "
        "by hand and close the gap.",
    )


def all_alike(samples: RunSamples) -> Finding | None:
    """Find groups whose samples are one text, though they were to differ."""
    groups: defaultdict[object, list[str]] = defaultdict(list)
    solved: defaultdict[object, float] = defaultdict(float)
    for rows in list(samples.first.values())[:1]:
        for row in rows:
            key = row.get("uid"), row.get("group")
            groups[key].append(str(row.get("response") or ""))
            solved[key] += float(row.get("reward") or 0.0)
    several = [texts for texts in groups.values() if len(texts) > 1]
    alike = [texts for texts in several if len(set(texts)) == 1]
    if len(several) < 4 or len(alike) < 0.9 * len(several):
        return None
    return Finding(
        "alike",
        min(samples.first),
        f"in step {min(samples.first)} all samples of {len(alike)} of {len(several)} prompts are the same text: groups "
        "hold nothing to compare. Raise worker.rollout.temperature (and top_k, top_p, min_p where they cut too much), "
        "or begin with a model that is less certain.",
    )


def unfinished(samples: RunSamples) -> Finding | None:
    """Find responses that go on behind their answer with turns of a chat: an end token that is not recognised."""
    marks = (
        "<|im_start|>",
        "<|im_end|>",
        "<|eot_id|>",
        "<|start_header_id|>",
        "<|user|>",
        "<|end|>",
        "</s>",
        "<end_of_turn>",
    )
    rows = list(samples.last) or [row for rows in samples.first.values() for row in rows]
    marked = [row for row in rows if any(mark in str(row.get("response") or "") for mark in marks)]
    if len(rows) < LEAST or len(marked) < 0.2 * len(rows):
        return None
    found = next(mark for mark in marks if mark in str(marked[0].get("response")))
    return Finding(
        "template",
        samples.last_step,
        f"{len(marked)} of {len(rows)} responses of step {samples.last_step} hold {found} as text: the token that ends "
        "a turn does not end a response. See that the model's generation_config.json names it as an end token, and "
        "that the chat template fits the model.",
    )


def empty(samples: RunSamples) -> Finding | None:
    """Find responses without any text."""
    rows: Sequence[Row] = samples.last
    none = [row for row in rows if not str(row.get("response") or "").strip()]
    if len(rows) < LEAST or len(none) < SHARE * len(rows):
        return None
    return Finding(
        "empty",
        samples.last_step,
        f"{len(none)} of {len(rows)} responses of step {samples.last_step} are empty: the policy ends its turn at "
        "once. An empty response may score as much as another, or the chat template leaves nothing to say.",
    )


def _first(samples: RunSamples) -> Sequence[Row]:
    return next(iter(samples.first.values()))


def _mean(rows: Sequence[Row]) -> float:
    """Return the mean reward of samples that have one, -inf where none has."""
    rewards = [float(row["reward"]) for row in rows if row.get("reward") is not None]
    return sum(rewards) / len(rewards) if rewards else -math.inf
