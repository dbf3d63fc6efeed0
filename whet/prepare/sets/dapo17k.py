"""DAPO-Math-17k (Yu et al., 2025): integer answers to competition problems.

The hub's file holds each of its 17 thousand problems a hundred times; one of each is kept. Its prompts are chats that
ask for the form of the answer before and behind the problem: whet's schema has the problem alone, verl's the chat.
"""

from __future__ import annotations

import re

from whet.data.columns import MISSING, lookup
from whet.data.formats import Columns
from whet.prepare.registry import DataSet, Drop, Item, chat, column, text

SOURCE = "BytedTsinghua-SIA/DAPO-Math-17k"
_FRAME = re.compile(
    r"\s*Solve the following math problem step by step\.[^\n]*\n\n"
    r"(.+)"
    r"\n\n[^\n]*on its own line after \"Answer:\"\.?\s*",
    re.DOTALL,
)


def _convert(row: Columns, split: str) -> Item:
    asked = column(row, "prompt")
    turns = None if isinstance(asked, str) else chat(row)
    question = text(row, "prompt") if turns is None else _problem(turns)
    truth = column(row, "reward_model.ground_truth", "solution", "answer")
    if truth is None or not str(truth).strip():
        raise Drop("empty answer")
    index = lookup(row, "extra_info.index")
    extra = {} if index is MISSING else {"id": index}
    return Item(question, str(truth).strip(), "math_dapo", extra=extra, key=str(question), chat=turns)


def _problem(turns: list[dict[str, object]]) -> str | list[dict[str, object]]:
    """Return the problem of the hub's chat without the requests around it, and any other chat as it is."""
    found = _FRAME.fullmatch(str(turns[0]["content"])) if len(turns) == 1 else None
    return found[1].strip() if found else turns


SET = DataSet(
    "competition mathematics with integer answers, as DAPO was trained on",
    SOURCE,
    {"train": f"{SOURCE}@train"},
    _convert,
    "data_source, prompt, ability, reward_model, extra_info",
    instruction='Solve it step by step. The last line must be "Answer: " followed by the answer.',
    template="format_prompt/dapo.jinja",
    note="The requests for an `Answer:` around the hub's problems are left out, to be made by data.format_prompt.",
)
