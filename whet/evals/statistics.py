"""avg@k, pass@k and maj@k of many questions, with intervals by the bootstrap over questions (Efron, 1979).

pass@k is the unbiased estimate of Chen et al. (2021). maj@k is the score of the answer that most of k samples give,
averaged over subsets of the n samples there are: all of them, or `SUBSETS` drawn ones; equally frequent answers share.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from whet.algos.bootstrap import SEED, sizes
from whet.training.measure import is_solved
from whet.training.rollouts import pass_at_k

SUBSETS = 200  # of a question's samples, for maj@k with k below n
CHUNK = 100  # bootstrap draws in memory at once


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over questions and its interval; a single question has none."""

    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One sample of a question, as statistics see it."""

    correct: float
    answer: str | None  # in the form in which equal answers are equal; None casts no vote
    others: dict[str, float]  # further scores


def estimates(
    questions: Sequence[Sequence[Attempt]], draws: int = 1000, confidence: float = 0.95
) -> dict[str, Estimate]:
    """Every metric of the samples of each question, where k goes up to the fewest samples that a question has."""
    n = min(len(attempts) for attempts in questions)
    columns: dict[str, list[float]] = {f"avg@{n}": [np.mean([a.correct for a in each]).item() for each in questions]}
    for k in [1, *sizes(n)] if n > 1 else []:
        columns[f"pass@{k}"] = [pass_at_k(len(each), sum(is_solved(a.correct) for a in each), k) for each in questions]
    for k in sizes(n):
        if k > 2:  # of two that differ, neither is the majority
            columns[f"maj@{k}"] = [majority(each, k) for each in questions]
    found = intervals(columns, draws, confidence)
    names = dict.fromkeys(name for each in questions for attempt in each for name in attempt.others)
    for name in names:  # not every question has every score: open and closed ones differ
        having = [[a.others[name] for a in each if name in a.others] for each in questions]
        column = {name: [sum(values) / len(values) for values in having if values]}
        found |= intervals(column, draws, confidence)
    return found


def majority(attempts: Sequence[Attempt], k: int) -> float:
    """The expected score of the answer that most of k samples give."""
    total = len(attempts)
    if comb(total, k) <= SUBSETS:
        subsets = [list(rows) for rows in combinations(range(total), k)]
    else:
        random = np.random.default_rng(SEED)
        subsets = [random.choice(total, size=k, replace=False).tolist() for _ in range(SUBSETS)]
    return sum(_vote([attempts[row] for row in rows]) for rows in subsets) / len(subsets)


def _vote(attempts: Sequence[Attempt]) -> float:
    votes = Counter(each.answer for each in attempts if each.answer is not None)
    if not votes:
        return sum(each.correct for each in attempts) / len(attempts)
    scores: defaultdict[str | None, list[float]] = defaultdict(list)
    for each in attempts:
        scores[each.answer].append(each.correct)
    most = max(votes.values())
    winners = [answer for answer, count in votes.items() if count == most]
    return sum(sum(scores[answer]) / len(scores[answer]) for answer in winners) / len(winners)


def intervals(columns: dict[str, list[float]], draws: int, confidence: float) -> dict[str, Estimate]:
    """The mean of each column, and the interval of the means of as many questions drawn with replacement."""
    values_QM = np.array(list(columns.values()), dtype=float).T
    Q = len(values_QM)
    means = values_QM.mean(axis=0)
    if Q == 1:
        return {name: Estimate(float(mean), None, None) for name, mean in zip(columns, means)}
    random = np.random.default_rng(SEED)
    drawn = []
    for start in range(0, draws, CHUNK):
        counts = random.multinomial(Q, np.full(Q, 1 / Q), size=min(CHUNK, draws - start))
        drawn.append(counts @ values_QM / Q)
    outside = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(drawn), [outside, 1 - outside], axis=0)
    return {name: Estimate(*map(float, each)) for name, *each in zip(columns, means, low, high)}
