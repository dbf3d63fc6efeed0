"""Responses that are cut off at the length limit."""

from __future__ import annotations

from whet.doctor.findings import Metrics

CUT_STEPS, CUT_SHARE = 3, 0.95


class CutResponses:
    """Nearly all responses reach the length limit for several steps."""

    name = "cut"
    evidence: tuple[str, ...] = ("response_length/clip_ratio", "response_length/mean")

    def __init__(self, limit: int) -> None:
        self._limit, self._steps = limit, 0

    def observe(self, metrics: Metrics) -> str | None:
        """Count steps in a row in which nearly all responses were cut off."""
        share = metrics.get("response_length/clip_ratio")
        if share is not None:
            self._steps = self._steps + 1 if share >= CUT_SHARE else 0
        if self._steps < CUT_STEPS:
            return None
        return (
            f"in {self._steps} steps in a row at least {CUT_SHARE:.0%} of the responses were cut off at "
            f"data.max_response_length={self._limit}, before an end or an answer. Look at responses in samples/: raise "
            "the limit, or see whether the model knows how to stop (its chat template, or a base model without "
            "instruction tuning)."
        )
