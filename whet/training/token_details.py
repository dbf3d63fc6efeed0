"""Tokens of a step that are recorded: which rows, and what the update knew of them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from whet.config.schema.trainer import TrainerConfig
from whet.tracking.token_records import TokenRecord
from whet.training.experience import Experience
from whet.types import Sample

MOST_TOKENS = 2_000_000  # of one step


def recorded_rows(config: TrainerConfig, samples: Sequence[Sample]) -> list[int]:
    """Return the rows of the first groups of a batch, whole, as many as the config wants and as are not too long.

    Batches are in the shuffled order of the data, and the rows are a function of the batch: a step that is redone after
    a resume records the same.
    """
    most = len(samples) if config.log_token_details else config.log_token_groups
    if not config.log_samples or not most:
        return []
    groups: dict[int | None, dict[int, int]] = {}
    for row, sample in enumerate(samples):
        groups.setdefault(sample.group, {}).setdefault(id(sample), row)  # a batch drawn anew repeats samples
    rows: list[int] = []
    tokens = 0
    for group in list(groups.values())[:most]:
        tokens += sum(len(samples[row].ids) for row in group.values())
        if tokens > MOST_TOKENS:
            break
        rows += group.values()
    return rows


def token_records(
    samples: Sequence[Sample], experience: Experience, rows: Sequence[int], recorded_3RT: Tensor
) -> list[TokenRecord]:
    """Return the records of these rows of an experience; `samples` are in the order of the step's sample file."""
    places = {id(sample): place for place, sample in enumerate(samples)}
    records = []
    for i, row in enumerate(rows):
        sample = experience.samples[row]
        length, computed = len(sample.ids), bool(recorded_3RT[2, i].any())
        records.append(
            TokenRecord(
                places[id(sample)],
                sample,
                experience.advantages_BT[row, :length].tolist(),
                experience.old_log_probs_BT[row, :length].tolist(),
                recorded_3RT[0, i, :length].tolist() if computed else None,
                recorded_3RT[1, i, :length].tolist() if computed else None,
            )
        )
    return sorted(records, key=lambda record: record.row)
