"""The doctor of a run that is being trained: rules see every step, findings are warned of and written down.

`Doctor` warns when a rule begins to hold, again if it has stopped holding in between, and appends each finding to
doctor.jsonl in the run folder. Nothing here changes a run; a step whose rewards all failed ends it by itself
(`RewardsFailedError`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from whet.checkpoint.durable import append_line
from whet.doctor.findings import Finding, Metrics, Rule


class Doctor:
    """The rules of one run. Its state begins anew when a run is resumed."""

    def __init__(self, folder: Path, warn: Callable[[str], None], rules: Sequence[Rule] = ()) -> None:
        self._file, self._warn = folder / "doctor.jsonl", warn
        self._rules = list(rules)
        self._holding: set[str] = set()

    def observe(self, step: int, metrics: Metrics) -> list[Finding]:
        """Let every rule see a step; report and return what has begun to hold."""
        found = []
        for rule in self._rules:
            sentence = rule.observe(metrics)
            if sentence is None:
                self._holding.discard(rule.name)
            elif rule.name not in self._holding:
                self._holding.add(rule.name)
                found.append(Finding(rule.name, step, sentence))
        for finding in found:
            self.report(finding)
        return found

    def report(self, finding: Finding) -> None:
        """Warn of a finding and write it down."""
        self._warn(f"step {finding.step}: {finding.sentence}" if finding.step else finding.sentence)
        self.note(finding)

    def note(self, finding: Finding) -> None:
        """Write a finding to doctor.jsonl; a disk that is full must not end the run."""
        try:
            append_line(self._file, json.dumps(asdict(finding)))
        except OSError as error:
            self._warn(f"{self._file} cannot be written: {error.strerror or error}")
