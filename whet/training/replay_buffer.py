"""Replay buffer: groups of earlier steps with right and wrong samples, trained on again.

A replayed sample keeps the log-probs of the policy that wrote it, so the ratio of the policy loss is the true one, and
clipping bounds it: the learner's, where it made a pass of its own when the sample was new, else the sampler's. With
`algorithm.rollout_correction` the learner's own of each step are the old log-probs, and the correction's importance
weights stand for the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from torch import Tensor

from whet.config.schema.algorithm import ReplayBufferConfig
from whet.training.experience import with_log_probs
from whet.training.measure import correctness, is_solved
from whet.types import Group, Sample


class ReplayBuffer:
    """The newest groups of which some samples are solved and some are not, oldest first."""

    def __init__(self, config: ReplayBufferConfig, seed: int) -> None:
        self._config, self._seed = config, seed
        self.groups: list[Group] = []

    def draw(self, step: int, version: int) -> list[Group]:
        """Return the groups that this step trains on again, none while there are too few; `version` is the policy's."""
        if self._config.max_age is not None:
            oldest = version - self._config.max_age
            self.groups = [each for each in self.groups if min(s.version for s in each.samples) >= oldest]
        if len(self.groups) < self._config.groups:
            return []
        chosen = Random(f"{self._seed}/replay/{step}").sample(range(len(self.groups)), self._config.groups)
        return [self.groups[i] for i in sorted(chosen)]

    def add(self, groups: Sequence[Group]) -> None:
        """Keep the groups that say something; the oldest make room."""
        if not groups:
            return
        score = correctness([sample for group in groups for sample in group.samples])
        for group in groups:
            solved = [is_solved(score(sample)) for sample in group.samples]
            if any(solved) and not all(solved) and all(sample.failure is None for sample in group.samples):
                self.groups.append(group)
        self.groups = self.groups[-self._config.size :]

    def relabel(self, samples: Sequence[Sample], log_probs_BT: Tensor) -> None:
        """Keep these log-probs with the groups of this step instead of the sampler's.

        Which turns of episodes were decoded together depends on when environments answered, and the sampler's rounding
        on that; the learner's pass depends on the samples alone. The step's own samples stay as they are.
        """
        rows = {id(sample): row for sample, row in zip(samples, log_probs_BT)}
        for i, group in enumerate(self.groups):
            if all(id(sample) in rows for sample in group.samples):
                relabelled = [with_log_probs(sample, rows[id(sample)].tolist()) for sample in group.samples]
                self.groups[i] = replace(group, samples=relabelled)
