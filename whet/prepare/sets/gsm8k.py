"""GSM8K (Cobbe et al., 2021): grade-school word problems; the number after #### is the truth."""

from __future__ import annotations

from whet.data.formats import Columns
from whet.prepare.registry import DataSet, Drop, Item, text

SOURCE = "openai/gsm8k"


def _convert(row: Columns, split: str) -> Item:
    question, solution = text(row, "question"), text(row, "answer")
    _, mark, number = solution.rpartition("####")
    number = number.strip().replace(",", "").removeprefix("$")
    if not mark or not number:
        raise Drop("solution without a number after ####")
    return Item(question, number, SOURCE, extra={"question": question, "solution": solution})


SET = DataSet(
    "grade-school word problems",
    SOURCE,
    {"train": f"{SOURCE}:main@train", "test": f"{SOURCE}:main@test"},
    _convert,
    "question, answer",
    instruction='Let\'s think step by step and output the final answer after "####".',
    template="format_prompt/gsm8k.jinja",
    note="The truth is the number after #### in the solution, without commas.",
)
