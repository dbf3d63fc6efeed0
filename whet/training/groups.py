"""Groups that wait for a later step, in a checkpoint."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from whet.data.loader import PromptLoader
from whet.errors import UserError
from whet.types import Group, Media, Prompt, Sample, Segment

_PROMPT = ("ids", "text", "messages")  # of an episode, which an environment may have begun otherwise than its row
_FIELDS = [field.name for field in fields(Sample) if field.name not in ("prompt", "segments")]
_SEGMENT = [field.name for field in fields(Segment)]


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
    samples = [_sample(prompt, known, loader) for known in record["samples"]]
    if any(sample.end is not None for sample in samples):
        from whet.rollout.episodes import share_prompts  # packing reads a shared prompt once

        share_prompts(samples)
    return Group(record["row"], samples)


def _record(sample: Sample) -> dict[str, Any]:
    """Return what JSON keeps of a sample; its prompt is found again by its row."""
    # Not `asdict`, which copies lists of tokens one by one.
    segments = [{name: getattr(segment, name) for name in _SEGMENT} for segment in sample.segments]
    for segment, known in zip(sample.segments, segments):
        known["media"] = _files(segment.media)
    record = {name: getattr(sample, name) for name in _FIELDS} | {"segments": segments}
    if sample.routing is not None:
        array: np.ndarray = sample.routing
        bits = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
        record["routing"] = {"dtype": array.dtype.name, "shape": array.shape, "bits": bits}
    if sample.end is None:
        return record
    prompt = {name: getattr(sample.prompt, name) for name in _PROMPT}
    if sample.prompt.media is None or not sample.prompt.media.videos:  # those are always the row's own
        prompt["media"] = _files(sample.prompt.media)
    return record | {"prompt": prompt}


def _sample(prompt: Prompt, known: dict[str, Any], loader: PromptLoader[Any]) -> Sample:
    if "prompt" in known:
        began = known.pop("prompt")
        if "media" in began:
            began["media"] = _media(began["media"], loader)
        prompt = replace(prompt, **began)
    for segment in known["segments"]:
        segment["media"] = _media(segment["media"], loader)
    if known.get("routing") is not None:
        array = known["routing"]
        bits = np.frombuffer(base64.b64decode(array["bits"]), dtype=np.dtype(array["dtype"]))
        known["routing"] = bits.reshape(array["shape"])
    return Sample(prompt, [Segment(**segment) for segment in known.pop("segments")], **known)


def _files(media: Media | None) -> list[str] | None:
    """Return the images of an episode as PNG files in base64, which keep every bit of them."""
    if media is None:
        return None
    assert not media.videos, "environments show none"
    files = []
    for image in media.images:
        file = io.BytesIO()
        image.save(file, format="PNG", compress_level=1)
        files.append(base64.b64encode(file.getvalue()).decode("ascii"))
    return files


def _media(files: list[str] | None, loader: PromptLoader[Any]) -> Media | None:
    if files is None:
        return None
    from PIL import Image

    if loader.media is None:
        raise UserError("the model reads text only, and the samples have images")
    try:
        return loader.media([Image.open(io.BytesIO(base64.b64decode(file))).convert("RGB") for file in files])
    except OSError as error:
        raise ValueError(f"an image of a sample cannot be read: {error}") from error
