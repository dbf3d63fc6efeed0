"""The batch in which the hf engine drew a sample: its random numbers depend on all rows of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from whet.config import val_rollout
from whet.resample.opened import Opened
from whet.resample.request import Request
from whet.resample.source import Source, read_rows
from whet.rollout.spec import default_slots
from whet.tracking.run_folder import read_metrics

_LATER = 3  # steps after the sample's, in whose files groups of its draw may be


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that were decoded together, in their order."""

    uids: list[str]
    sample_ids: list[int]
    place: int  # of the sample


def batch_of(folder: Path, opened: Opened, source: Source, request: Request) -> tuple[Batch | None, str]:
    """Return the batch of a sample and a sentence about it; None if not all prompts of it are known any more."""
    config = opened.config
    rollout = val_rollout(config) if request.split == "val" else config.worker.rollout
    n, size = rollout.n, rollout.max_num_seqs or default_slots(opened.model.device)
    # 1. Samples of one call of the engine have consecutive ids, from the first of a draw to its last.
    uids, own = _uids(folder, request), source.sample_id
    first, count = _draw(folder, opened, request, own, n)
    # 2. The call cuts them into batches of `size` rows; this is the one with the sample.
    start = first + (own - first) // size * size
    wanted = list(range(start, min(start + size, first + count)))
    groups = [first + (each - first) // n * n for each in wanted]
    if any(group not in uids for group in groups):
        return None, (
            "The hf engine's random numbers depend on the whole batch of a sample, and some of its prompts are not in "
            "samples/: tokens differ."
        )
    batch = Batch([uids[group] for group in groups], wanted, wanted.index(own))
    return batch, f"Drawn with the {len(wanted)} rows of its batch, which the hf engine's random numbers depend on."


def _uids(folder: Path, request: Request) -> dict[int, str]:
    """Return the rows of the data by group, of the step's samples and of those carried to later steps."""
    later = _LATER if request.split == "train" else 0
    found: dict[int, str] = {}
    for step in range(request.step + later, request.step - 1, -1):
        file = folder / "samples" / f"{request.split}_{step:06d}.parquet"
        if file.is_file():
            found |= {row["group"]: row["uid"] for row in read_rows(file, ("group", "uid"))}
    return found


def _draw(folder: Path, opened: Opened, request: Request, own: int, n: int) -> tuple[int, int]:
    """Return the id of the first sample of the draw that a sample is of, and how many samples it has."""
    data = opened.config.data
    file = folder / "samples" / f"{request.split}_{request.step:06d}.parquet"
    groups = [row["group"] for row in read_rows(file, ("group",))]
    if request.split == "val":
        at_once = data.val_batch_size * n if data.val_batch_size > 0 else len(groups)
        first = own // at_once * at_once
        return first, min(at_once, len(groups) - first)
    samples = (data.mini_rollout_batch_size or data.rollout_batch_size) * n
    metrics = {row["step"]: row for row in read_metrics(folder / "metrics.jsonl")}.get(request.step, {})
    if metrics.get("batch/draws") == 1 and not metrics.get("batch/stale_groups"):
        return min(groups), samples
    return own // samples * samples, samples
