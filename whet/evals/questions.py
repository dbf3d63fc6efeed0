"""The rows of a data set as questions: what is asked, what is true, and what a question is counted under."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from whet.assets import resolve_data
from whet.config import Config, resolve_path
from whet.config.schema.data import DataConfig
from whet.data.columns import MISSING, column_names, lookup
from whet.data.files import Table, read_tables, with_answers
from whet.data.formats import Columns
from whet.errors import UserError
from whet.evals.metrics import Truth
from whet.evals.registry import DataSet
from whet.tracking.console import Console


@dataclass(slots=True)
class Question:
    """One row."""

    uid: str
    row: Columns
    truth: Truth
    groups: dict[str, str] = field(default_factory=dict)  # column → value, for the tables of a report


@dataclass(slots=True)
class Questions:
    """A data set, read: its questions by uid, and how `data/` reads the same rows."""

    dataset: DataSet
    by_uid: dict[str, Question]
    tables: list[Table]
    data: DataConfig


def read_questions(config: Config, examples: Path, dataset: DataSet, console: Console) -> Questions:
    """Read the files of a data set, keep the rows that it means, and find its columns."""
    key = f"eval.definitions.{dataset.name}.files" if config.eval.datasets else "data.val_files"
    files = resolve_data(dataset.files or "", console.note)
    tables = read_tables(files, key, lambda value: find(config, examples, value))
    return arrange(config, examples, dataset, tables)


def arrange(
    config: Config, examples: Path, dataset: DataSet, tables: Sequence[Table], asked: bool = False
) -> Questions:
    """The questions in these tables; of those that were `asked` already, nobody needs the prompt."""
    kept, left = [], config.eval.limit
    for table in tables:
        rows = [row for row in table.rows if all(lookup(row, name) == value for name, value in dataset.where.items())]
        rows = rows if left is None else rows[:left]
        left = None if left is None else left - len(rows)
        if rows:
            found = Table(table.name, [_with_answer(_with_choices(row, dataset), dataset) for row in rows])
            kept.append(with_null_answers(found, dataset) if scored_by_environment(config, dataset) else found)
    if not kept:
        given = ", ".join(f"{name}={value}" for name, value in dataset.where.items())
        raise UserError(f"{dataset.name}: no row has {given} (eval.definitions.{dataset.name}.where)")
    first, uid = kept[0].rows[0], f"{kept[0].name}:1"
    data = replace(
        config.data,
        prompt_key=dataset.prompt_key[0] if asked else _column(dataset, "prompt_key", first, uid),
        answer_key=_column(dataset, "answer_key", first, uid),
        image_key=next((name for name in dataset.image_key if name in first), dataset.image_key[0]),
        image_dir=str(find(config, examples, dataset.image_dir)) if dataset.image_dir else None,
        format_prompt=str(find(config, examples, dataset.format_prompt)) if dataset.format_prompt else None,
    )
    by_uid = {}
    for table in kept:
        for number, row in enumerate(table.rows, start=1):
            needs_answer = not scored_by_environment(config, dataset)
            question = _question(dataset, data, row, f"{table.name}:{number}", needs_answer)
            by_uid[question.uid] = question
    return Questions(dataset, by_uid, kept, data)


def find(config: Config, examples: Path, value: str) -> Path:
    """A path as configs mean it, else beside the examples that come with whet."""
    path = resolve_path(config, value)
    return path if path.exists() or not (examples / value).exists() else examples / value


def scored_by_environment(config: Config, dataset: DataSet) -> bool:
    """True if an environment alone scores its episodes: neither the config nor the data set names what does."""
    named = dataset.score or dataset.reward_function or config.worker.reward.is_named
    return config.worker.rollout.plays_episodes and not named


def with_null_answers(table: Table, dataset: DataSet) -> Table:
    """Return rows with null where none of the columns of answers is there: an environment may need none."""
    if any(lookup(table.rows[0], name) is not MISSING for name in dataset.answer_key):
        return table
    return with_answers(table, dataset.answer_key[0])


def _question(dataset: DataSet, data: DataConfig, row: Columns, uid: str, needs_answer: bool) -> Question:
    answer = lookup(row, data.answer_key)
    if needs_answer and (answer is MISSING or answer is None):
        raise UserError(f"{uid}: the answer (column {data.answer_key!r}) is empty; fill it in, or remove the row")
    kind = lookup(row, dataset.kind_key) if dataset.kind_key else ""
    truth = Truth(
        None if answer is MISSING else answer,
        tuple(str(each) for each in row.get("choices") or ()) if dataset.choices_key else (),
        "" if kind in (MISSING, None) else str(kind),
        dataset.labels,
        dataset.tolerance,
    )
    names = [name for name in (dataset.source_key, *dataset.category_keys) if lookup(row, name) is not MISSING]
    return Question(uid, row, truth, {name: str(lookup(row, name)) for name in names})


def _with_choices(row: Columns, dataset: DataSet) -> Columns:
    """Templates find choices under one name, whatever their column is called."""
    if not dataset.choices_key:
        return row
    found = lookup(row, dataset.choices_key)
    return row | {"choices": [] if found is MISSING or found is None else _listed(found)}


def _with_answer(row: Columns, dataset: DataSet) -> Columns:
    """Rows whose answer is in several columns (LiveCodeBench's tests) have it in one."""
    if not dataset.answer_columns or any(lookup(row, name) is not MISSING for name in dataset.answer_key):
        return row
    found = {name: row[name] for name in dataset.answer_columns if row.get(name)}
    return row | {dataset.answer_key[0]: found} if found else row


def _listed(value: Any) -> list[Any]:
    return (
        list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list | tuple) else [value]
    )


def _column(dataset: DataSet, key: str, row: Columns, uid: str) -> str:
    names: tuple[str, ...] = getattr(dataset, key)
    found = next((name for name in names if lookup(row, name) is not MISSING), None)
    if found is None:
        raise UserError(
            f"eval.definitions.{dataset.name}.{key}: {uid} has no column {' or '.join(names)}. Its columns: "
            f"{', '.join(column_names(row))}. Name one of them."
        )
    return found
