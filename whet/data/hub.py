"""Datasets of the Hugging Face hub, read through the `datasets` library when it is installed.

Rows come out as Arrow and become plain Python values, so an image column stays bytes or a path: `datasets` would
decode every picture of the set otherwise.
"""

from __future__ import annotations

from typing import Any

from whet.data.arrow import DAMAGE
from whet.data.formats import Columns
from whet.errors import UserError

# Configurations to prefer, in this order, when a dataset has several and none was named.
USUAL_CONFIGURATIONS = ("default", "main")


def read_hub(spec: str, key: str) -> list[Columns]:
    """Read `org/name@split` or `org/name:configuration@split`; the split is train when none is named."""
    name, _, split = spec.partition("@")
    name, _, configuration = name.partition(":")
    try:
        import datasets
    except ImportError as error:
        raise UserError(
            f"{key}: there is no file or folder {name!r} here. If it is a dataset of the Hugging Face hub, "
            "reading it needs the datasets library: pip install whet[hub]"
        ) from error
    try:
        configuration = configuration or _choose(datasets.get_dataset_config_names(name), name, key)
        splits = datasets.get_dataset_split_names(name, configuration)
        wanted = split or "train"
        if wanted not in splits:
            raise UserError(f"{key}: {name} has no split {wanted!r}. Splits there: {', '.join(splits)}.")
        dataset = datasets.load_dataset(name, configuration, split=wanted)
    except (OSError, ValueError) as error:
        raise UserError(f"{key}: the dataset {name} could not be loaded from the hub ({error}).") from error
    try:
        return _plain_rows(dataset)
    except DAMAGE as error:
        raise UserError(f"{key}: the dataset {name} is damaged ({error}). Remove it from the cache.") from error


def _choose(configurations: list[str], name: str, key: str) -> str:
    if len(configurations) == 1:
        return configurations[0]
    for usual in USUAL_CONFIGURATIONS:
        if usual in configurations:
            return usual
    raise UserError(
        f"{key}: {name} has several configurations ({', '.join(configurations)}). "
        f"Name one: {name}:{configurations[0]}@train"
    )


def _plain_rows(dataset: Any) -> list[Columns]:
    rows = []
    for table in dataset.with_format("arrow").iter(batch_size=1000):
        table.validate(full=True)  # files in a cache can be damaged as any others
        rows += table.to_pylist()
    return rows
