"""The built-ins `whet/shapes` (rows with pictures), `whet/vision` and `whet/vision3` (models that look a little)."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from whet.assets.drawing import blank
from whet.assets.questions import TASKS, Question, ask, held_out
from whet.assets.vision_model import QWEN2_5, QWEN3, write_vision_folder

SEED = 1
TRAIN_ROWS = 2000

PICTURE = pa.struct([("bytes", pa.binary())])
SCHEMA = pa.schema(
    [
        ("problem", pa.string()),
        ("answer", pa.string()),
        ("images", pa.list_(PICTURE)),
        ("videos", pa.list_(pa.list_(PICTURE))),
        ("task", pa.string()),
    ]
)


def png(picture: Image.Image) -> dict[str, bytes]:
    """A picture as data files hold it."""
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG", compress_level=1)
    return {"bytes": buffer.getvalue()}


def row(task: str, question: Question, blanked: bool = False) -> dict:
    """One row of the data files; `blanked` takes everything out of its pictures."""

    def shown(picture: Image.Image) -> dict[str, bytes]:
        return png(blank(picture.width) if blanked else picture)

    return {
        "problem": question.problem,
        "answer": question.answer,
        "images": [shown(picture) for picture in question.images],
        "videos": [[shown(frame) for frame in question.frames]] if question.frames else [],
        "task": task,
    }


def make_shapes(folder: Path, say: Callable[[str], None]) -> None:
    """Write a Parquet file for each split."""
    say("Drawing the pictures of whet/shapes (once)")
    for task in TASKS:
        test = held_out(task, SEED)
        rng, hidden = Random(f"{task} train {SEED}"), {question.pixels for question in test}
        train = [ask(task, rng, hidden) for _ in range(TRAIN_ROWS)]
        for part, questions, blanked in (("train", train, False), ("test", test, False), ("blank", test, True)):
            rows = [row(task, question, blanked) for question in questions]
            pq.write_table(pa.Table.from_pylist(rows, SCHEMA), folder / f"{task}_{part}.parquet")


def make_vision(folder: Path, say: Callable[[str], None]) -> None:
    """Write the Hugging Face folder `model/` of `whet/vision` under `folder`."""
    write_vision_folder("vision", QWEN2_5, folder / "model")


def make_vision3(folder: Path, say: Callable[[str], None]) -> None:
    """Write the same of `whet/vision3`, which is of Qwen3-VL's classes."""
    write_vision_folder("vision3", QWEN3, folder / "model")
