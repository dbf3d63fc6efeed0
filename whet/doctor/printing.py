"""Diagnoses for a terminal and for programs."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from whet.doctor.examine import Diagnosis
from whet.tracking.lines import visible

_WIDTH = 100


def as_text(folder: Path, steps: int, found: Sequence[Diagnosis]) -> str:
    """Return the findings of a run in paragraphs, each with its evidence."""
    name = visible(str(folder))
    if not found:
        return f"{name}: nothing found in {steps} step{'s' * (steps != 1)}\n"
    lines = [f"{name}: {len(found)} finding{'s' * (len(found) > 1)} in {steps} steps"]
    for each in found:
        lines += ["", f"  {visible(each.finding.rule)}, {_steps(each)}"]
        sentence = visible(each.finding.sentence, " ")
        lines += textwrap.wrap(sentence, _WIDTH, initial_indent="    ", subsequent_indent="    ")
        width = max((len(metric) for metric in each.evidence), default=0)
        for metric, points in each.evidence.items():
            numbers = "  ".join(f"{step}: {value:.4g}" for step, value in points)
            lines.append(f"    {metric:<{width}}  {numbers}")
    return "\n".join(lines) + "\n\n"


def as_json(folder: Path, found: Sequence[Diagnosis]) -> str:
    """Return one line of strict JSON for each finding; a number that is not finite is a text."""
    return "".join(json.dumps({"run": str(folder), **plain(each)}, allow_nan=False) + "\n" for each in found)


def plain(diagnosis: Diagnosis) -> dict[str, object]:
    """Return a diagnosis as what JSON can hold."""
    evidence = {
        name: [[step, value if math.isfinite(value) else str(value)] for step, value in points]
        for name, points in diagnosis.evidence.items()
    }
    return {**asdict(diagnosis.finding), "until": diagnosis.until, "evidence": evidence}


def _steps(diagnosis: Diagnosis) -> str:
    first, last = diagnosis.finding.step, diagnosis.until
    if not first:
        return "before the first step"
    return f"step {first}" if first == last else f"steps {first} to {last}"
