"""MATH (Hendrycks et al., 2021): competition problems; the last box of the solution is the truth."""

from __future__ import annotations

from whet.data.formats import Columns
from whet.prepare.registry import DataSet, Drop, Item, text
from whet.rewards.answers.extract import boxed_answer

SOURCE = "DigitalLearningGmbH/MATH-lighteval"


def _convert(row: Columns, split: str) -> Item:
    problem, solution = text(row, "problem"), text(row, "solution")
    truth = boxed_answer(solution)
    if not truth:
        raise Drop("solution without a box")
    about = {name: row[name] for name in ("level", "type", "subject", "unique_id") if row.get(name) is not None}
    return Item(problem, truth, SOURCE, extra={"solution": solution} | about)


SET = DataSet(
    "competition mathematics",
    SOURCE,
    {"train": f"{SOURCE}:default@train", "test": f"{SOURCE}:default@test"},
    _convert,
    "problem, solution, level, type",
    instruction="Let's think step by step and output the final answer within \\boxed{}.",
    template="format_prompt/math.jinja",
    note="The truth is what the last box of the solution holds.",
)
