"""Columns of prepared rows: whet's own, and verl's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from whet.data.formats import Columns
from whet.prepare.registry import DataSet, Item


def as_whet(item: Item, dataset: DataSet, split: str, index: int) -> Columns:
    """`prompt`, `answer` and `data_source`, as `data.prompt_key` and `data.answer_key` have them by default."""
    row: Columns = {"prompt": item.question, "answer": item.answer, "data_source": item.data_source}
    if item.images:
        row["images"] = list(item.images)
    return row | {"split": split, "index": index} | dict(item.extra)


def as_verl(item: Item, dataset: DataSet, split: str, index: int) -> Columns:
    """`data_source`, `prompt` (a chat, the instruction in it), `ability`, `reward_model` and `extra_info`."""
    row: Columns = {
        "data_source": item.data_source,
        "prompt": _asked(item, dataset.instruction),
        "ability": item.ability,
        "reward_model": {"style": item.style, "ground_truth": item.answer},
        "extra_info": {"split": split, "index": index} | dict(item.extra),
    }
    if item.images:
        row["images"] = list(item.images)
    return row


def _asked(item: Item, instruction: str) -> list[dict[str, Any]]:
    if item.chat is not None:
        return item.chat  # says itself what form the answer is to have
    if not isinstance(item.question, str):
        return item.question
    text = f"{item.question} {instruction}" if instruction else item.question
    return [{"role": "user", "content": text}]


SCHEMAS: dict[str, Callable[[Item, DataSet, str, int], Columns]] = {"whet": as_whet, "verl": as_verl}
# Config keys by which `whet train` reads each schema.
KEYS = {
    "whet": {"data.prompt_key": "prompt", "data.answer_key": "answer"},
    "verl": {"data.prompt_key": "prompt", "data.answer_key": "reward_model.ground_truth"},
}
