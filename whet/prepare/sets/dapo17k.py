"""DAPO-Math-17k (Yu et al., 2025): integer answers to competition problems.

The hub's file holds each of its 17 thousand problems a hundred times; one of each is kept.
"""

from __future__ import annotations

from whet.data.columns import MISSING, lookup
from whet.data.formats import Columns
from whet.prepare.registry import DataSet, Drop, Item, chat, column, text

SOURCE = "BytedTsinghua-SIA/DAPO-Math-17k"


def _convert(row: Columns, split: str) -> Item:
    asked = column(row, "prompt")
    question: str | list[dict[str, object]] = text(row, "prompt") if isinstance(asked, str) else chat(row)
    truth = column(row, "reward_model.ground_truth", "solution", "answer")
    if truth is None or not str(truth).strip():
        raise Drop("empty answer")
    index = lookup(row, "extra_info.index")
    extra = {} if index is MISSING else {"id": index}
    return Item(question, str(truth).strip(), "math_dapo", extra=extra, key=str(question))


SET = DataSet(
    "competition mathematics with integer answers, as DAPO was trained on",
    SOURCE,
    {"train": f"{SOURCE}@train"},
    _convert,
    "data_source, prompt, ability, reward_model, extra_info",
    instruction='Solve it step by step. The last line must be "Answer: " followed by the answer.',
    template="format_prompt/dapo.jinja",
    note="Prompts that are chats ask for the form of the answer themselves: read those without data.format_prompt.",
)
