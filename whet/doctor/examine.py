"""Examine a run by its folder: what the doctor wrote down while it trained, and what rules find in metrics and samples.

Only metrics.jsonl and samples/ are read, so that a run of another version, or without a config, is examined too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.doctor.findings import Finding, Metrics
from whet.doctor.rules import rules_for

_EVIDENCE_STEPS = 5  # before and at the step of a finding


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A finding, the last step at which it still held, and the numbers behind it."""

    finding: Finding
    until: int
    evidence: Mapping[str, Sequence[tuple[int, float]]]  # points (step, value) by metric


def examine(metrics: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> list[Diagnosis]:
    """Run every rule over the metrics of a run, by step; `settings` is the run's flat config, or {}."""
    limit = settings.get("data.max_response_length")
    free = settings.get("worker.rollout.ignore_eos") or not isinstance(limit, int)
    rows = [(int(row["step"]), _numbers(row)) for row in metrics if row["step"]]  # step 0 validates only
    found: list[Diagnosis] = []
    for rule in rules_for(None if free else limit):
        began: Finding | None = None
        until = 0
        for step, numbers in rows:
            sentence = rule.observe(numbers)
            if sentence is not None:
                began, until = began or Finding(rule.name, step, sentence), step
            elif began is not None:
                found.append(Diagnosis(began, until, _evidence(rows, began.step, rule.evidence)))
                began = None
        if began is not None:
            found.append(Diagnosis(began, until, _evidence(rows, began.step, rule.evidence)))
    return sorted(found, key=lambda each: each.finding.step)


def examine_run(folder: Path, metrics: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> list[Diagnosis]:
    """Return all that can be found in a run folder: by its metrics, by its samples, and what it wrote down itself."""
    found = [*examine(metrics, settings), *examine_samples(folder)]
    return with_written(found, read_findings(folder))


def examine_samples(folder: Path) -> list[Diagnosis]:
    """Return what the rules find in the samples of a run."""
    from whet.doctor.rules import sample_rules
    from whet.doctor.samples import read_samples

    samples = read_samples(folder)
    findings = [finding for rule in sample_rules() if (finding := rule(samples)) is not None] if samples.first else []
    return [Diagnosis(finding, finding.step, {}) for finding in findings]


def read_findings(folder: Path) -> list[Finding]:
    """Read doctor.jsonl of a run folder; lines that are torn or of another form are skipped, no file is no finding."""
    try:
        lines = (folder / "doctor.jsonl").read_bytes().splitlines()
    except OSError:
        return []
    return [finding for line in lines if (finding := _finding(line)) is not None]


def with_written(diagnoses: Iterable[Diagnosis], written: Iterable[Finding]) -> list[Diagnosis]:
    """Add what only the run itself could notice (its rows, rewards that all failed) to what its metrics show."""
    found = list(diagnoses)
    known = {each.finding.rule for each in found}
    found += [Diagnosis(each, each.step, {}) for each in written if each.rule not in known]
    return sorted(found, key=lambda each: each.finding.step)


def _finding(line: bytes) -> Finding | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    rule, step, sentence = (record.get(name) for name in ("rule", "step", "sentence"))
    if not isinstance(rule, str) or not isinstance(step, int) or not isinstance(sentence, str):
        return None
    return Finding(rule, step, sentence)


def _numbers(row: Mapping[str, Any]) -> Metrics:
    return {name: float(value) for name, value in row.items() if isinstance(value, int | float) and name != "step"}


def _evidence(
    rows: Sequence[tuple[int, Metrics]], step: int, names: Sequence[str]
) -> dict[str, list[tuple[int, float]]]:
    curves = {name: [(at, row[name]) for at, row in rows if at <= step and name in row] for name in names}
    return {name: curve[-_EVIDENCE_STEPS:] for name, curve in curves.items() if curve}
