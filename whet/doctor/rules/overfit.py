"""Validation that falls while training rises."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

from whet.doctor.findings import Metrics

FALLING_VALIDATIONS, FALL = 3, 0.05  # the share of its highest value that the validation reward must have lost


class FallingValidation:
    """The reward in validation falls from one to the next while that in training rises."""

    name = "overfit"
    evidence: tuple[str, ...] = ("val/reward", "reward/overall")

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque(maxlen=FALLING_VALIDATIONS + 1)  # training, validation
        self._trained: list[float] = []
        self._highest = 0.0
        self._holds = False

    def observe(self, metrics: Metrics) -> str | None:
        """Take in the reward of a step, and at a validation compare the last ones."""
        if "reward/overall" in metrics:
            self._trained.append(metrics["reward/overall"])
        if "val/reward" in metrics and self._trained:
            self._points.append((sum(self._trained) / len(self._trained), metrics["val/reward"]))
            self._highest = max(self._highest, abs(metrics["val/reward"]))
            self._trained = []
            self._holds = self._falls()
        if not self._holds:
            return None
        (train, val), (train_now, val_now) = self._points[0], self._points[-1]
        return (
            f"in the last {FALLING_VALIDATIONS} validations the reward fell ({val:.3f} → {val_now:.3f}) while that in "
            f"training rose ({train:.3f} → {train_now:.3f}): the policy may overfit its prompts or exploit the reward "
            "function. Compare responses of training and validation in samples/; the best checkpoint is kept "
            "(trainer.keep_best), and more data, a KL term or fewer epochs help."
        )

    def _falls(self) -> bool:
        points = list(self._points)
        pairs = list(pairwise(points))
        return (
            len(pairs) == FALLING_VALIDATIONS
            and all(after[0] > before[0] and after[1] < before[1] for before, after in pairs)
            and points[0][1] - points[-1][1] > FALL * self._highest
        )
