"""The numbers of a report: for a data set as a whole, and for its sources, categories and kinds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from whet.config.schema.jobs import EvalConfig
from whet.evals.metrics import label_f1, label_set
from whet.evals.registry import DataSet
from whet.evals.scoring import Scored
from whet.evals.statistics import Attempt, Estimate, estimates


@dataclass(slots=True)
class Group:
    """Questions that are counted together."""

    name: str  # the value of a column; "" for all
    questions: int
    samples: int
    metrics: dict[str, Estimate]


@dataclass(slots=True)
class Result:
    """A data set's numbers."""

    dataset: DataSet
    total: Group
    by_column: dict[str, list[Group]] = field(default_factory=dict)
    failed: int = 0  # samples without an answer or a score

    @property
    def accuracy(self) -> tuple[str, Estimate]:
        """avg@n, with its n."""
        return next((name, value) for name, value in self.total.metrics.items() if name.startswith("avg@"))


def summarise(dataset: DataSet, scored: Sequence[Scored], config: EvalConfig) -> Result:
    """Every number of a data set's scored answers."""
    by_column: dict[str, list[Group]] = {}
    columns = dict.fromkeys(name for each in scored for name in each.question.groups)
    for column in columns:
        parts = _split(scored, partial(_value_of, column))
        if column != dataset.source_key or len(parts) > 1:
            by_column[column] = [_group(dataset, name, each, config) for name, each in sorted(parts.items())]
    kinds = _split(scored, lambda each: each.kind or None)
    if len(kinds) > 1:
        by_column["kind"] = [_group(dataset, name, each, config) for name, each in sorted(kinds.items())]
    failed = sum(each.failure is not None for each in scored)
    return Result(dataset, _group(dataset, "", scored, config), by_column, failed)


def _value_of(column: str, each: Scored) -> str | None:
    return each.question.groups.get(column)


def _split(scored: Sequence[Scored], name_of: Callable[[Scored], str | None]) -> dict[str, list[Scored]]:
    parts: defaultdict[str, list[Scored]] = defaultdict(list)
    for each in scored:
        if (name := name_of(each)) is not None:
            parts[name].append(each)
    return dict(parts)


def _group(dataset: DataSet, name: str, scored: Sequence[Scored], config: EvalConfig) -> Group:
    questions = _split(scored, lambda each: each.question.uid)
    attempts = [[_attempt(each) for each in some] for some in questions.values()]
    metrics = estimates(attempts, config.draws, config.confidence)
    if dataset.score == "labels":
        pairs = [
            (label_set(each.said or "", dataset.labels), label_set(each.question.truth.answer, dataset.labels))
            for each in scored
        ]
        metrics |= {name: Estimate(value, None, None) for name, value in label_f1(pairs).items()}
    return Group(name, len(questions), len(scored), metrics)


def _attempt(each: Scored) -> Attempt:
    about = {
        "no_answer": float(each.said is None),
        "cut_off": float(each.answer.finish == "length"),
        "length": float(each.answer.length),
    }
    scores = {f"{name}_score" if name in about else name: value for name, value in each.scores.items()}
    return Attempt(each.correct, each.vote, scores | about)
