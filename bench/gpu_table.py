"""The table of bench/gpu.py, in Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

COLUMNS = (
    "part",
    "tokens/s",
    "s",
    "of which",
    "decode ms (x floor)",
    "MFU",
    "peak GiB",
    "log-prob difference, mean (max)",
    "start to first step, s",
)


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """One row a part. `s` is the best rollout, the median update or switch, or the median whole step."""
    rows = [COLUMNS, tuple("---" for _ in COLUMNS), *(_row(name, result) for name, result in results.items())]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _row(name: str, result: Mapping[str, Any]) -> tuple[str, ...]:
    if "error" in result:
        return (name, "failed", *[""] * (len(COLUMNS) - 2))
    if "skipped" in result:
        return (name, f"skipped: {result['skipped']}", *[""] * (len(COLUMNS) - 2))
    return (
        name,
        f"{result['tokens'] / _seconds(result):,.0f}" if "tokens" in result else "",
        f"{_seconds(result):.2f}",
        ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in _stages(result).items()),
        _decode(result),
        f"{result['mfu']:.1%}" if "mfu" in result else "",
        _peak(result),
        f"{result['log_prob_diff_mean']:.4f} ({result['log_prob_diff_max']:.3f})"
        if "log_prob_diff_mean" in result
        else "",
        f"{result['first_step_s']:.0f}" if "first_step_s" in result else f"ready {result['ready_s']:.0f}",
    )


def _seconds(result: Mapping[str, Any]) -> float:
    if "rollout_s" in result:
        return min(result["rollout_s"])
    return statistics.median(result.get("step_s") or result.get("switch_s") or result["update_s"])


def _stages(result: Mapping[str, Any]) -> dict[str, float]:
    """Where a step's seconds went, and what is left over."""
    if "stages_s" not in result:
        return {}
    stages = {stage: seconds for stage, seconds in result["stages_s"].items() if seconds >= 0.005}
    return stages | {"rest": _seconds(result) - sum(stages.values())}


def _decode(result: Mapping[str, Any]) -> str:
    if "floor_s" not in result:
        return ""
    each = 1000 * _seconds(result) / result["new_tokens"]
    return f"{each:.2f} ({_seconds(result) / result['floor_s']:.1f}x)"


def _peak(result: Mapping[str, Any]) -> str:
    if "device_peak_gib" in result:
        return f"{result['device_peak_gib']:.1f}"
    return f"{result['torch_peak_gib']:.1f} (torch)" if "torch_peak_gib" in result else ""
