"""Skywork-OR1-RL-Data (He et al., 2025): mathematics and programs with estimated difficulties.

On the hub truths are JSON texts: `["2"]` for mathematics, tests for programs. They are written as lists and mappings.
`model_difficulty` is from 0 to 16 for each of three models; `whet data filter` keeps a band of it.
"""

from __future__ import annotations

import json
from typing import Any

from whet.data.columns import MISSING, lookup
from whet.data.formats import Columns
from whet.errors import UserError
from whet.prepare.registry import DataSet, Drop, Item, chat, column, text
from whet.rewards.programs.tests import read_tests

SOURCE = "Skywork/Skywork-OR1-RL-Data"


def _convert(row: Columns, split: str) -> Item:
    turns, source = chat(row), text(row, "data_source")
    ability = text(row, "ability")
    truth = _decoded(column(row, "reward_model.ground_truth"))
    if ability == "code":
        truth = _tests(truth)
    about = {"id": lookup(row, "extra_info.index"), "model_difficulty": lookup(row, "extra_info.model_difficulty")}
    extra = {name: value for name, value in about.items() if value is not MISSING and value is not None}
    return Item(turns, truth, source, ability, extra=extra)


def _decoded(truth: Any) -> Any:
    if isinstance(truth, str):
        try:
            truth = json.loads(truth)
        except (ValueError, RecursionError):
            truth = [truth]
    if truth in (None, [], {}, ""):
        raise Drop("empty ground truth")
    return truth if isinstance(truth, dict | list) else [str(truth)]


def _tests(truth: Any) -> Any:
    if isinstance(truth, dict):
        truth = {name: value for name, value in truth.items() if value is not None}
    try:
        count = len(read_tests(truth))
    except UserError:
        raise Drop("tests of an unknown form") from None
    if not count:
        raise Drop("program without tests")
    return truth


SET = DataSet(
    "mathematics and programs that Skywork-OR1 was trained on",
    SOURCE,
    {"math": f"{SOURCE}@math", "code": f"{SOURCE}@code"},
    _convert,
    "data_source, prompt, ability, reward_model, extra_info",
    note="Prompts ask for the form of the answer themselves: read them without data.format_prompt.",
)
