"""Failures of environments and harnesses: reported once each, scored with the fallback, and fatal if all fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from whet.envs.session import EnvFailure
from whet.errors import RewardsFailedError
from whet.types import Prompt, Sample

ENV = "env "  # begins `Sample.failure` where the environment failed, and not the reward function
MOST_REPORTS = 100  # warnings of a run: a message may differ each time


class EpisodeFailures:
    """Failures of a run's episodes."""

    def __init__(self, key: str, noun: str, name: str, fallback: float, warn: Callable[[str], None]) -> None:
        """`noun` and `name` say what plays the episodes, `key` where the config names it."""
        self._setting, self._noun, self.name = f"{key}={name}", noun, name
        self._fallback, self._warn = fallback, warn
        self._reported: set[tuple[str, str]] = set()
        self._last_failure = ""

    def report(self, prompt: Prompt, failure: EnvFailure, consequence: str = "") -> None:
        """Warn of a failure whose like was not seen before."""
        lost = "nothing is lost by it" if failure.place == "close" else None
        consequence = consequence or lost or f"so the sample scores worker.reward.fallback={self._fallback:g}"
        self._last_failure = str(failure)
        if (failure.kind, failure.detail) not in self._reported and len(self._reported) < MOST_REPORTS:
            self._reported.add((failure.kind, failure.detail))
            self._warn(f"{self._noun} {self.name}: {failure} on {prompt.uid}, {consequence} (shown once)")

    def settle(self, samples: Sequence[Sample]) -> list[Sample]:
        """Give samples whose environment failed the fallback as their score; return the others, to be scored."""
        for sample in samples:
            if failed(sample):
                sample.scores = {"overall": float(self._fallback)}
        return [sample for sample in samples if not failed(sample)]

    def require(self, samples: Sequence[Sample], where: str) -> None:
        """Raise `RewardsFailedError` if environments failed in every one of these episodes."""
        if not samples or not all(map(failed, samples)):
            return
        counts = Counter(str(sample.failure).removeprefix(ENV) for sample in samples)
        kinds = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
        raise RewardsFailedError(
            f"{where}: {self._setting} failed in all {len(samples)} episodes ({kinds}), so none has a score. "
            f"The last time {self._last_failure}.\nCorrect the {self._noun}, or the rows that it is given."
        )


def failed(sample: Sample) -> bool:
    """True if the environment of an episode failed."""
    return sample.failure is not None and sample.failure.startswith(ENV)
