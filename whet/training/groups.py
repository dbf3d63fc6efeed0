"""Groups that wait for a later step, in a checkpoint."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from whet.data.loader import PromptLoader
from whet.errors import UserError
from whet.types import Group, Prompt, Sample, Segment

_PROMPT = ("ids", "text", "messages")  # of an episode, which an environment may have begun otherwise than its row
_FIELDS = [field.name for field in fields(Sample) if field.name not in ("prompt", "segments")]


def save_groups(groups: Sequence[Group], file: Path) -> None:
    """Write groups; prompts are named by their rows."""
    file.write_text(json.dumps([group_record(group) for group in groups]), encoding="utf-8")


def load_groups(file: Path, loader: PromptLoader) -> list[Group]:
    """Read back what `save_groups` wrote, to the last bit."""
    try:
        return [group_from_record(record, loader) for record in json.loads(file.read_text(encoding="utf-8"))]
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise UserError(f"{file} does not hold samples of this data ({type(error).__name__}: {error})") from error


def group_record(group: Group) -> dict[str, Any]:
    """Return what JSON keeps of a group; its prompt is named by its row."""
    return {"row": group.row, "samples": [_record(sample) for sample in group.samples]}


def group_from_record(record: dict[str, Any], loader: PromptLoader[Any]) -> Group:
    """Return the group that a record was made of, to the last bit."""
    (prompt,) = loader.prompts([record["row"]])
    samples = [_sample(prompt, known) for known in record["samples"]]
    if any(sample.end is not None for sample in samples):
        from whet.rollout.episodes import share_prompts  # packing reads a shared prompt once

        share_prompts(samples)
    return Group(record["row"], samples)


def _record(sample: Sample) -> dict[str, Any]:
    """Return what JSON keeps of a sample; its prompt is found again by its row."""
    assert all(segment.media is None for segment in sample.segments), "images of later turns have no row to be found by"
    segments = [asdict(segment) for segment in sample.segments]
    record = {name: getattr(sample, name) for name in _FIELDS} | {"segments": segments}
    if sample.routing is not None:
        array: np.ndarray = sample.routing
        bits = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
        record["routing"] = {"dtype": array.dtype.name, "shape": array.shape, "bits": bits}
    if sample.end is None:
        return record
    return record | {"prompt": {name: getattr(sample.prompt, name) for name in _PROMPT}}


def _sample(prompt: Prompt, known: dict[str, Any]) -> Sample:
    if "prompt" in known:
        prompt = replace(prompt, **known.pop("prompt"))
    if known.get("routing") is not None:
        array = known["routing"]
        bits = np.frombuffer(base64.b64decode(array["bits"]), dtype=np.dtype(array["dtype"]))
        known["routing"] = bits.reshape(array["shape"])
    return Sample(prompt, [Segment(**segment) for segment in known.pop("segments")], **known)
