"""AIME 2024 and 2025: thirty problems each, whose answers are integers from 0 to 999.

Reads the hub's columns (problem, answer) and those of Skywork-OR1's files (a chat, reward_model.ground_truth).
"""

from __future__ import annotations

import re

from whet.data.columns import MISSING, lookup
from whet.data.formats import Columns
from whet.prepare.registry import DataSet, Drop, Item, chat, column, text

INSTRUCTION = "Let's think step by step and output the final answer within \\boxed{}."
_INTEGER = re.compile(r"\$?(\d{1,3})(?:\.0*)?(?:\^\{?\\circ\}?|°)?\$?")


def _convert(row: Columns, split: str) -> Item:
    problem = text(row, "problem", "question") if lookup(row, "reward_model.ground_truth") is MISSING else _asked(row)
    found = _INTEGER.fullmatch(str(column(row, "answer", "reward_model.ground_truth", "expected_answer")).strip())
    if found is None:
        raise Drop("answer that is no integer from 0 to 999")
    return Item(problem, str(int(found[1])), split, key=problem)


def _asked(row: Columns) -> str:
    """Return the last turn of a chat without the request for a box, which not all files have."""
    content = chat(row)[-1]["content"]
    return str(content).strip().removesuffix(INSTRUCTION).strip()


SET = DataSet(
    "problems of AIME 2024 and 2025",
    "HuggingFaceH4/aime_2024, math-ai/aime25",
    {"aime24": "HuggingFaceH4/aime_2024@train", "aime25": "math-ai/aime25@test"},
    _convert,
    "problem, answer",
    instruction=INSTRUCTION,
    template="format_prompt/eval_boxed.jinja",
    note='Answers are written without leading zeros and degree signs ("025" is 25).',
)
