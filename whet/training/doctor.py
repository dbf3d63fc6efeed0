"""Notice runs that go on without learning: rules from metrics, and from rows at the start, to findings.

A rule returns a sentence while what it looks for is so. `Doctor` warns when a rule begins to hold, again if it has
stopped holding in between, and appends each finding to doctor.jsonl in the run folder. Nothing here changes a run; a
step whose rewards all failed ends it by itself (`RewardsFailedError`).
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from whet.checkpoint.durable import append_line
from whet.config import Config

Metrics = Mapping[str, float]

TIED_STEPS = 5
CUT_STEPS, CUT_SHARE = 3, 0.95
DRIFT_STEPS, DRIFT = 3, 0.1  # nats a token; bfloat16 engines are at 0.005 to 0.03
FALLING_VALIDATIONS, FALL = 3, 0.05  # the share of its highest value that the validation reward must have lost


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a run that a person should look at."""

    rule: str
    step: int
    sentence: str  # what was seen, with numbers, and what to look at


class Rule(Protocol):
    """A rule sees the metrics of every step once, in order, and returns a sentence while it holds."""

    name: str

    def observe(self, metrics: Metrics) -> str | None:
        """Take in a step; return what was found, or None."""


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


def rules(config: Config) -> list[Rule]:
    """Return the rules that make sense for a run."""
    found: list[Rule] = [Ties(), LogProbDrift(), FallingValidation()]
    return found if config.worker.rollout.ignore_eos else [*found, CutResponses(config.data.max_response_length)]


class Ties:
    """No sample has an advantage for several steps: all samples of each group score the same."""

    name = "ties"

    def __init__(self) -> None:
        self._steps = 0

    def observe(self, metrics: Metrics) -> str | None:
        """Count steps in a row in which every advantage is 0."""
        if "advantage/max" in metrics:  # else the step trained on nothing, which batch/empty_steps counts
            tied = metrics["advantage/max"] == metrics["advantage/min"] == 0
            self._steps = self._steps + 1 if tied else 0
        return self._sentence(metrics) if self._steps >= TIED_STEPS else None

    def _sentence(self, metrics: Metrics) -> str:
        seen = (
            f"in {self._steps} steps in a row the samples of every prompt scored the same, so that no sample had an "
            f"advantage and nothing was learned (mean reward {metrics.get('reward/overall', math.nan):.3f}). "
        )
        if metrics.get("batch/solve_all", 0.0) >= 0.99:
            return seen + "Every prompt is solved: stop here, or train on harder data."
        return seen + (
            "Look at responses in samples/ and at their scores: the reward function may miss right answers, the prompt "
            "may not ask for the form that it reads, or the data is too hard for this model (easier rows, a larger "
            "worker.rollout.n, whet sft first)."
        )


class CutResponses:
    """Nearly all responses reach the length limit for several steps."""

    name = "cut"

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


class LogProbDrift:
    """Sampler and learner give the same tokens different probabilities for several steps."""

    name = "drift"

    def __init__(self) -> None:
        self._steps = 0

    def observe(self, metrics: Metrics) -> str | None:
        """Count steps in a row with a mean difference above what rounding explains."""
        gap = metrics.get("rollout/log_prob_diff_mean")
        if gap is not None:
            self._steps = self._steps + 1 if not gap <= DRIFT else 0  # NaN counts
        if self._steps < DRIFT_STEPS or gap is None:
            return None
        return (
            f"in {self._steps} steps in a row log-probs of the sampler and of the learner differed by more than "
            f"{DRIFT:g} a token (rollout/log_prob_diff_mean {gap:.3f}; rounding in bfloat16 gives about 0.01), so that "
            "the policy is trained on what another one sampled. Look at the engine: its dtype or quantization, its "
            "chat template and the weights it received; worker.rollout.name=native or hf shows whether it is the "
            "engine; algorithm.rollout_correction reweights what remains."
        )


class FallingValidation:
    """The reward in validation falls from one to the next while that in training rises."""

    name = "overfit"

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
