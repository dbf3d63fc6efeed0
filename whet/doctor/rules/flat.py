"""A policy that does not move, though it has something to learn."""

from __future__ import annotations

from collections import deque

from whet.doctor.findings import Metrics

WINDOW, ERRORS = 15, 3.0  # steps at the start and now, and standard errors that count as a change


class FlatRun:
    """Since the start neither reward nor entropy has changed by more than noise, though samples have advantages."""

    name = "flat"
    evidence: tuple[str, ...] = ("actor/lr", "actor/entropy", "reward/overall", "actor/grad_norm")

    def __init__(self) -> None:
        self._first: list[tuple[float, float]] = []  # reward, entropy
        self._latest: deque[tuple[float, float]] = deque(maxlen=WINDOW)
        self._moved = False  # once is enough: a run that has learned may rest

    def observe(self, metrics: Metrics) -> str | None:
        """Compare the latest steps with the first."""
        if self._moved or "actor/entropy" not in metrics or "reward/overall" not in metrics:
            return None
        if metrics.get("advantage/max", 1.0) == metrics.get("advantage/min", 0.0):
            return None  # rule `ties`: there is nothing to learn from
        point = metrics["reward/overall"], metrics["actor/entropy"]
        if len(self._first) < WINDOW:
            self._first.append(point)
            return None
        self._latest.append(point)
        if len(self._latest) < WINDOW:
            return None
        self._moved = any(_differ(before, now) for before, now in zip(zip(*self._first), zip(*self._latest)))
        if self._moved:
            return None
        (reward, entropy), (reward_now, entropy_now) = (
            [sum(values) / WINDOW for values in zip(*points)] for points in (self._first, self._latest)
        )
        return (
            f"since the start of the run reward ({reward:.3f} → {reward_now:.3f}) and entropy ({entropy:.3f} → "
            f"{entropy_now:.3f}, means over {WINDOW} steps) changed by no more than noise, though samples had "
            "advantages: the policy does not move. The usual reason is a learning rate that is too low for the batch: "
            f"raise worker.actor.optim.lr (now {metrics.get('actor/lr', float('nan')):.3g}) by ten times, and see that "
            "worker.actor.max_grad_norm does not cut every gradient."
        )


def _differ(before: tuple[float, ...], now: tuple[float, ...]) -> bool:
    """True if two means differ by more than their standard errors explain; NaN counts as a change."""
    error = (_variance(before) / len(before) + _variance(now) / len(now)) ** 0.5
    gap = abs(sum(now) / len(now) - sum(before) / len(before))
    return not gap <= ERRORS * error


def _variance(values: tuple[float, ...]) -> float:
    mean = sum(values) / len(values)
    return float(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
