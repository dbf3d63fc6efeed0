"""Geometry3K (Lu et al., 2021) as hiyouga/geometry3k has it: problems with a figure."""

from __future__ import annotations

from whet.data.columns import column_items
from whet.data.formats import Columns
from whet.prepare.registry import DataSet, Drop, Item, text

SOURCE = "hiyouga/geometry3k"
_PLACE = "<image>"


def _convert(row: Columns, split: str) -> Item:
    problem, truth = text(row, "problem"), text(row, "answer")
    images = tuple(column_items(row, "images"))
    if not images:
        raise Drop("no image")
    places = problem.count(_PLACE)
    if places not in (0, len(images)):
        raise Drop(f"other number of {_PLACE} than of images")
    return Item(problem if places else _PLACE * len(images) + problem, truth, SOURCE, images=images)


SET = DataSet(
    "geometry with figures",
    SOURCE,
    {"train": f"{SOURCE}@train", "validation": f"{SOURCE}@validation", "test": f"{SOURCE}@test"},
    _convert,
    "images, problem, answer",
    instruction="First think about it between <think> and </think>. Then put the final answer in \\boxed{}.",
    template="format_prompt/geo3k.jinja",
    note="Images stay the bytes or paths that they are.",
)
