"""Gradients that explode."""

from __future__ import annotations

import math
from collections import deque
from statistics import median

from whet.doctor.findings import Metrics

EARLIER, RECENT, NEEDED, TIMES = 50, 5, 3, 10.0


class ExplodingGradients:
    """Several gradient norms of the latest steps are far above the usual one, or not finite."""

    name = "gradients"
    evidence: tuple[str, ...] = ("actor/grad_norm", "actor/grad_skipped", "actor/lr")

    def __init__(self) -> None:
        self._usual: deque[float] = deque(maxlen=EARLIER)  # norms that were not large
        self._recent: deque[bool] = deque(maxlen=RECENT)

    def observe(self, metrics: Metrics) -> str | None:
        """Compare a step's gradient norm with the median of earlier ones."""
        norm = metrics.get("actor/grad_norm")
        skipped = metrics.get("actor/grad_skipped", 0.0)
        if norm is None and not skipped:
            return None
        broken = bool(skipped) or norm is None or not math.isfinite(norm)
        usual = median(self._usual) if len(self._usual) >= RECENT else math.inf
        large = broken or (norm is not None and norm > TIMES * usual)
        self._recent.append(large)
        if not large and norm is not None:
            self._usual.append(norm)
        if sum(self._recent) < NEEDED:
            return None
        seen = "not finite" if broken else f"{norm:.3g}"
        before = f"; the usual one of this run is {usual:.3g}" if math.isfinite(usual) else ""
        return (
            f"in {sum(self._recent)} of the last {len(self._recent)} steps the gradient was more than {TIMES:g} times "
            f"the usual one, or not finite (actor/grad_norm {seen}{before}). Lower worker.actor.optim.lr, set "
            "worker.actor.max_grad_norm (1.0), warm up longer (worker.actor.optim.lr_warmup_ratio), and go on from a "
            "checkpoint before this step."
        )
