"""Scores that each prompt has had so far: which prompts to draw, which to retire, and what to expect of one.

Of every row the discounted number of samples N, solved samples S and rewards R are kept: a visit of n samples makes
them N ← ρN + n, S ← ρS + solved, R ← ρR + Σ reward, with ρ `data.curriculum.decay`, because the policy that earned
older ones is gone. The pass rate is (S + ½)/(N + 1), ½ for a row that was never drawn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from whet.config.schema.data import CurriculumConfig
from whet.errors import UserError
from whet.training.measure import correctness, is_solved
from whet.types import Group

EXPECTED = "expected_reward"  # the score under which SPO finds what was expected before a group was sampled


class PassRates:
    """Statistics of all rows of the training data; a function of the groups observed, in their order."""

    def __init__(self, config: CurriculumConfig, seed: int, rows: int) -> None:
        self._config, self._seed = config, seed
        self.counts_3R = np.zeros((3, rows))  # N, S and R of every row
        self.mean, self.draws = 0.5, 0  # mean reward of the latest groups; batches chosen

    @property
    def rates(self) -> np.ndarray:
        """The pass rate of every row, a number between 0 and 1."""
        N, S, _ = self.counts_3R
        rates: np.ndarray = (S + 0.5) / (N + 1.0)
        return rates

    @property
    def retired(self) -> np.ndarray:
        """True for rows that are solved so reliably that they are drawn no more."""
        if self._config.retire_at is None:
            return np.zeros(self.counts_3R.shape[1], dtype=bool)
        N, S, _ = self.counts_3R
        return (self._config.retire_after <= N) & (self._config.retire_at * N <= S)

    def expected(self, row: int) -> float:
        """Return the reward that a sample of this row is expected to have: (R + m)/(N + 1), m the mean of all."""
        N, _, R = self.counts_3R[:, row]
        return float((R + self.mean) / (N + 1.0))

    def observe(self, groups: Sequence[Group], note_expected: bool) -> None:
        """Take in scored groups; with `note_expected` each sample gets the score that was expected of it before."""
        if not groups:
            return
        score = correctness([sample for group in groups for sample in group.samples])
        expected = [self.expected(group.row) for group in groups]
        for group, before in zip(groups, expected):
            samples = group.samples
            N, S, R = self.counts_3R[:, group.row] * self._config.decay
            solved = sum(is_solved(score(sample)) for sample in samples)
            self.counts_3R[:, group.row] = N + len(samples), S + solved, R + sum(sample.reward for sample in samples)
            if note_expected:
                for sample in samples:
                    sample.scores[EXPECTED] = before
        rewards = [sample.reward for group in groups for sample in group.samples]
        self.mean = 0.9 * self.mean + 0.1 * sum(rewards) / len(rewards)

    def learned(self, count: int) -> str | None:
        """Return a sentence if fewer rows are left than the `count` of a draw, None otherwise."""
        left, rows = int((~self.retired).sum()), self.counts_3R.shape[1]
        if left >= count:
            return None
        return (
            f"data.curriculum.retire_at={self._config.retire_at} has retired all but {left} of {rows} rows, fewer than "
            f"the {count} of a draw: the data is learned"
        )

    def choose(self, count: int) -> list[int]:
        """Draw `count` different rows, each with a chance that grows with √(p(1 − p)) + explore; none that is retired.

        Without `enable` all chances are equal. The draw is a function of the seed, the number of draws before it, and
        the pass rates.
        """
        if learned := self.learned(count):
            raise UserError(f"{learned}; add rows, raise retire_at or lower data.rollout_batch_size")
        left = np.flatnonzero(~self.retired)
        p = self.rates[left]
        weights = np.sqrt(p * (1.0 - p)) + self._config.explore if self._config.enable else np.ones(len(left))
        digest = hashlib.sha256(f"{self._seed}/{self.draws}".encode()).digest()
        uniforms = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:8], "big"))).random(len(left))
        self.draws += 1
        # The largest of log(u)/w are a weighted draw without replacement (Efraimidis & Spirakis, 2006).
        keys = np.log(np.maximum(uniforms, np.finfo(float).tiny)) / weights
        return [int(row) for row in left[np.argsort(-keys, kind="stable")[:count]]]

    def metrics(self) -> dict[str, float]:
        """Return the mean pass rate of rows that were drawn, the share that was, and the share that is retired."""
        drawn = self.counts_3R[0] > 0
        found = {"curriculum/seen": float(drawn.mean()), "curriculum/retired": float(self.retired.mean())}
        return found | ({"curriculum/pass_rate": float(self.rates[drawn].mean())} if drawn.any() else {})

    def state_dict(self) -> dict[str, Any]:
        """Return everything the next draw depends on; rows never drawn are left out."""
        seen = np.flatnonzero(self.counts_3R[0])
        rows = {str(row): self.counts_3R[:, row].tolist() for row in seen}
        return {"rows": rows, "total": self.counts_3R.shape[1], "mean": self.mean, "draws": self.draws}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.counts_3R = np.zeros((3, int(state["total"])))
        for row, counts in state["rows"].items():
            self.counts_3R[:, int(row)] = counts
        self.mean, self.draws = float(state["mean"]), int(state["draws"])
