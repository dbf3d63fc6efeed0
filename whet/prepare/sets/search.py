"""Questions to be answered with a search engine (NQ, HotpotQA and others), as Search-R1 trains on them."""

from __future__ import annotations

from typing import Any

from whet.data.columns import MISSING, lookup
from whet.data.formats import Columns
from whet.errors import UserError
from whet.prepare.registry import DataSet, Drop, Item, column, text

SOURCE = "PeterJinGo/nq_hotpotqa_train"
PREFIX = "searchR1_"
KNOWN = ("nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle")


def _convert(row: Columns, split: str) -> Item:
    question = text(row, "question")
    question = question if question[-1] == "?" else f"{question}?"
    targets = _targets(column(row, "golden_answers", "reward_model.ground_truth.target", "answer"))
    source = str(column(row, "data_source")).removeprefix(PREFIX)
    if source not in KNOWN:
        raise UserError(f"data_source={source} is not one of {', '.join(KNOWN)}; say which with --data-source")
    name = lookup(row, "id")
    extra = {} if name is MISSING else {"id": str(name)}
    return Item(question, {"target": targets}, PREFIX + source, "fact-reasoning", extra=extra)


def _targets(value: Any) -> list[str]:
    given = value if isinstance(value, list) else [value]
    targets = [str(each).strip() for each in given if each is not None and str(each).strip()]
    if not targets:
        raise Drop("no answers")
    return targets


SET = DataSet(
    "open questions for a model with a search engine (NQ, HotpotQA)",
    SOURCE,
    {"train": f"{SOURCE}@train", "test": f"{SOURCE}@test"},
    _convert,
    "id, question, golden_answers, data_source",
    instruction=(
        "Reason between <think> and </think> whenever you learn something new. If you lack knowledge, write a query "
        "between <search> and </search>; results come between <information> and </information>, and you may search as "
        "often as you need. When nothing is missing, write the answer alone between <answer> and </answer>."
    ),
    note="The truth is {target: [...]}: any of the answers counts.",
)
