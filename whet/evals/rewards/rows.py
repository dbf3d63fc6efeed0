"""Rows and responses of a bench: each response with the row that it answers, as a sample for the reward."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from whet.assets import resolve_data
from whet.config import Config
from whet.data.columns import MISSING, lookup, missing_column
from whet.data.files import read_tables
from whet.data.formats import Columns
from whet.errors import UserError
from whet.training.parts import resolver
from whet.types import Prompt, Sample

DATA, RESPONSES = "whet reward bench DATA", "whet reward bench --responses"


@dataclass(slots=True)
class Bench:
    """Everything that is scored."""

    prompts: list[Prompt]
    samples: list[Sample] = field(default_factory=list)
    labels: list[bool | None] = field(default_factory=list)  # one a sample


def read_bench(config: Config, data: str, responses: str | None, column: str, label: str | None) -> Bench:
    """Read the rows, and their responses where there are some: in a column of theirs, or in a file."""
    rows = _rows(config, data, DATA)
    bench = Bench([_prompt(config, uid, row) for uid, row in rows])
    if responses is None:
        pairs = [(prompt, row) for prompt, (_, row) in zip(bench.prompts, rows) if column in row]
    else:
        pairs = _joined(config, bench.prompts, rows, _rows(config, responses, RESPONSES))
    for prompt, row in pairs:
        for index, text in enumerate(_texts(row, column, prompt.uid)):
            length = row.get("response_length")
            ids = [0] * (length if isinstance(length, int) and length >= 0 else len(text.split()))
            place = row.get("index") if isinstance(row.get("index"), int) else index
            bench.samples.append(Sample.written(prompt, ids, [], "stop", index=int(place or 0), text=text))
            bench.labels.append(_label(row, label, index, prompt.uid))
    return bench


def _rows(config: Config, files: str, key: str) -> list[tuple[str, Columns]]:
    tables = read_tables(resolve_data(files, lambda _: None), key, resolver(config))
    return [(f"{table.name}:{at}", row) for table in tables for at, row in enumerate(table.rows, start=1)]


def _prompt(config: Config, uid: str, row: Columns) -> Prompt:
    answer = lookup(row, config.data.answer_key)
    if answer is MISSING:
        raise missing_column(row, uid, config.data.answer_key, "data.answer_key")
    return Prompt(uid, [], _text(lookup(row, config.data.prompt_key)), answer, row)


def _text(prompt: Any) -> str:
    """The prompt as a text; of a chat, what its turns say."""
    if isinstance(prompt, list):
        return "\n".join(str(turn.get("content", "")) for turn in prompt if isinstance(turn, dict))
    return prompt if isinstance(prompt, str) else ""


def _joined(
    config: Config, prompts: Sequence[Prompt], rows: Sequence[tuple[str, Columns]], given: list[tuple[str, Columns]]
) -> list[tuple[Prompt, Columns]]:
    """Each row of responses with its prompt: by uid, by the prompt column, or by position in files of one length."""
    by_uid = {prompt.uid: prompt for prompt in prompts}
    if all(row.get("uid") is not None for _, row in given):
        missing = next((row["uid"] for _, row in given if str(row["uid"]) not in by_uid), None)
        if missing is None:
            return [(by_uid[str(row["uid"])], row) for _, row in given]
    name = config.data.prompt_key
    if all(lookup(row, name) is not MISSING for _, row in (*given, *rows)):
        by_prompt: defaultdict[str, list[Prompt]] = defaultdict(list)
        for prompt, (_, row) in zip(prompts, rows):
            by_prompt[str(lookup(row, name))].append(prompt)
        found = [(by_prompt.get(str(lookup(row, name))), row) for _, row in given]
        if all(match for match, _ in found):
            return [(match[0], row) for match, row in found if match]
    if len(given) == len(prompts):
        return [(prompt, row) for prompt, (_, row) in zip(prompts, given)]
    raise UserError(
        f"{RESPONSES}: its {len(given)} rows cannot be matched with the {len(prompts)} rows of the data: give them a "
        f"column uid (FILE:ROW, as whet generate writes it) or {name}, or as many rows in the same order"
    )


def _texts(row: Columns, column: str, uid: str) -> list[str]:
    said = row.get(column)
    texts = said if isinstance(said, list) else [said]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise UserError(
            f"{uid}: the response (column {column!r}) is no text, nor a list of texts; its columns: {', '.join(row)}; "
            "name one by --response-column"
        )
    return [str(text) for text in texts]


def _label(row: Columns, name: str | None, index: int, uid: str) -> bool | None:
    if name is None:
        return None
    value = lookup(row, name)
    if isinstance(value, list) and index < len(value):
        value = value[index]
    if value is MISSING:
        raise UserError(f"{uid}: there is no column {name} for --label; its columns: {', '.join(row)}")
    words = {"true": True, "yes": True, "right": True, "false": False, "no": False, "wrong": False, "": None}
    if isinstance(value, str) and value.strip().lower() in words:
        return words[value.strip().lower()]
    if value is None or isinstance(value, bool):
        return value
    try:
        return float(value) >= 0.5
    except (TypeError, ValueError):
        raise UserError(f"{uid}: the label {value!r} (column {name}) is neither a number nor true or false") from None
