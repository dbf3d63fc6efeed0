"""Rewards with models in them: a weighted sum of functions, a reward model and a judge.

Functions run in their worker processes (`scorer.py`), the other terms in this process, all at the same time. A sample
that one of them fails on has failed: half a sum is no reward.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from whet.errors import RewardsFailedError
from whet.rewards.background import Background
from whet.rewards.calls import failure_counts
from whet.rewards.inputs import Decode
from whet.rewards.protocol import Term, TermFailure, TermScore
from whet.rewards.result import LARGEST, Scores
from whet.rewards.scorer import RewardScorer
from whet.rewards.steps import earn
from whet.types import Prompt, Sample

if TYPE_CHECKING:
    from whet.config.schema.reward import RewardConfig

log = logging.getLogger("whet")


class MixedScorer:
    """Scores samples with terms that have weights, and with functions whose weights are in their own sum."""

    def __init__(
        self,
        function: RewardScorer | None,
        terms: Sequence[tuple[Term, float]],
        config: RewardConfig,
        warn: Callable[[str], None] = log.warning,
        output: Path | None = None,
    ) -> None:
        """`warn` gets each kind of failure once; `output` is the file with what functions print."""
        self._function, self._terms, self._config = function, terms, config
        self._warn, self._output = warn, output
        self._reported: set[tuple[str, str, str]] = set()
        self._last: TermFailure | None = None
        self._background = Background("whet-rewards")

    def __enter__(self) -> MixedScorer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def decode(self) -> Decode | None:
        """Function that makes texts of turns."""
        return self._function.decode if self._function else None

    @decode.setter
    def decode(self, value: Decode | None) -> None:
        if self._function:
            self._function.decode = value

    def check(self, prompts: list[Prompt]) -> None:
        """Try rows with every part; weights are not loaded yet."""
        if self._function:
            self._function.check(prompts)
        for term, _ in self._terms:
            self._background.run(term.check(prompts))

    def ready(self) -> None:
        """Load the weights of all terms."""
        for term, _ in self._terms:
            term.ready()

    def trial(self, samples: list[Sample], end: float) -> list[Scores | None]:
        """Score samples by the functions alone; None for all where there are none."""
        return self._function.trial(samples, end) if self._function else [None] * len(samples)

    def score(self, samples: list[Sample], progress: Callable[[int], None] | None = None) -> dict[str, float]:
        """Fill `scores` and `failure` of every sample and count failures."""
        counts = self._background.run(self._score(samples))
        if progress:
            progress(len(samples))
        return counts

    async def score_async(self, samples: list[Sample]) -> dict[str, float]:
        """Do the same beside other calls, in any event loop."""
        return await self._background.wait(self._score(samples))

    def require_scores(self, samples: Sequence[Sample], where: str) -> None:
        """Raise `RewardsFailedError` if every one of these samples, which were scored, has failed."""
        if not samples or not all(sample.failure for sample in samples):
            return
        if self._last is None and self._function:
            self._function.require_scores(samples, where)
        counts = Counter(str(sample.failure) for sample in samples)
        kinds = ", ".join(f"{count} {failure}" for failure, count in counts.most_common())
        shown = f" The last reason: {self._last.detail}" if self._last else ""
        raise RewardsFailedError(f"{where}: no reward for any of {len(samples)} samples ({kinds}).{shown}")

    def scores_batches(self) -> bool:
        """True if a part takes all samples of a step at once."""
        own = self._function is not None and self._function.scores_batches()
        return own or any(term.together for term, _ in self._terms)

    def wants(self, name: str) -> bool:
        """True if a function asks for "images", "videos" or "turns"."""
        return self._function is not None and self._function.wants(name)

    def close(self) -> None:
        """End the worker processes and give back what the terms hold."""
        self._background.close()
        if self._function:
            self._function.close()
        for term, _ in self._terms:
            term.close()

    async def _score(self, samples: list[Sample]) -> dict[str, float]:
        """Have all parts score the samples at once, then add up."""
        if not samples:
            return failure_counts(samples)
        if self._function:
            *found, _ = await asyncio.gather(
                *(term.score(samples) for term, _ in self._terms), self._function.score_async(samples)
            )
        else:
            found = await asyncio.gather(*(term.score(samples) for term, _ in self._terms))
            for sample in samples:
                sample.scores, sample.failure = {"overall": 0.0}, None
        for sample, *results in zip(samples, *found, strict=True):
            self._settle(sample, results)
        return failure_counts(samples)

    def _settle(self, sample: Sample, results: Sequence[TermScore | TermFailure]) -> None:
        """Add the results of all terms to a sample, or fail it by the first that failed."""
        sample.notes |= {t.name: r.note for (t, _), r in zip(self._terms, results) if r.note is not None}
        for (term, _), result in zip(self._terms, results):
            if isinstance(result, TermScore) and (problem := _problem(result)):
                result = TermFailure("bad result", "no number", problem)
            if isinstance(result, TermFailure):
                self._fail(sample, term, result)
                return
        if sample.failure:
            return
        for (term, weight), result in zip(self._terms, results):
            assert isinstance(result, TermScore)
            sample.scores[term.name] = result.score
            sample.scores |= {f"{term.name}_{name}": number for name, number in result.scores.items()}
            if result.steps is None:
                sample.scores["overall"] += weight * result.score
            else:
                earn(sample, {end: weight * reward for end, reward in result.steps.items()})

    def _fail(self, sample: Sample, term: Term, result: TermFailure) -> None:
        self._last = result
        sample.scores, sample.failure = {"overall": float(self._config.fallback)}, result.failure
        seen = (term.name, result.failure, result.cause)
        if seen not in self._reported:
            self._reported.add(seen)
            self._warn(
                f"worker.reward.{term.name} has no score for {sample.prompt.uid}, so the sample scores "
                f"worker.reward.fallback={self._config.fallback} (shown once)\n{result.detail}".rstrip()
            )


def _problem(result: TermScore) -> str | None:
    """Return what keeps a score from being trained on."""
    for number in (result.score, *(result.steps or {}).values()):
        if not math.isfinite(number) or abs(number) > LARGEST:
            return f"it gives {number}, which is no finite number within ±{LARGEST:g}"
    return None
