"""Python objects as data: what is stored of them is what the reader of files reads."""

from __future__ import annotations

import datetime
import decimal
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from whet.api.data import data_files, prompt_tables, rows_as_lines
from whet.api.inputs import Inputs
from whet.data.files import read_rows
from whet.data.images import decode, open_image
from whet.errors import UserError

ROWS = [{"prompt": "a", "answer": "b"}, {"prompt": "c", "answer": None}]


def _stored(data: Any, folder: Path) -> list[dict[str, Any]]:
    inputs = Inputs(folder)
    file = data_files(data, "data", inputs)
    with inputs.written():
        return read_rows(file)


def test_lists_and_arrow_tables(tmp_path: Path) -> None:
    assert _stored(ROWS, tmp_path) == ROWS
    assert _stored(tuple(ROWS), tmp_path) == ROWS
    assert _stored(pa.Table.from_pylist(ROWS), tmp_path) == ROWS


def test_a_pandas_frame(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"prompt": ["a", "b"], "count": [1, None], "when": pandas.to_datetime(["2020-01-01", None])}
    )
    assert _stored(frame, tmp_path) == [
        {"prompt": "a", "count": 1.0, "when": "2020-01-01T00:00:00"},
        {"prompt": "b", "count": None, "when": None},
    ]
    assert _stored(frame.convert_dtypes(), tmp_path)[1]["count"] is None
    for wrong, said in (
        (frame[:0], "is empty"),
        (pandas.DataFrame([[1, 2]]), "column name 0"),
        (pandas.DataFrame([[1, 2]], columns=["a", "a"]), "two columns of one name"),
    ):
        with pytest.raises(UserError, match=said):
            rows_as_lines(wrong, "data")


def test_a_dataset(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    dataset = datasets.Dataset.from_list(ROWS)
    assert _stored(dataset, tmp_path) == ROWS
    for wrong, said in (
        (datasets.DatasetDict({"train": dataset}), "several splits"),
        (dataset.to_iterable_dataset(), "is a stream"),
        (dataset.select([]), "is empty"),
    ):
        with pytest.raises(UserError, match=said):
            rows_as_lines(wrong, "data")


def test_values_that_json_does_not_know(tmp_path: Path) -> None:
    row = {
        "array": np.arange(3),
        "scalar": np.float32(0.5),
        "missing": float("nan"),
        "path": Path("a/b"),
        "day": datetime.date(2020, 1, 2),
        "exact": decimal.Decimal("1.10"),
        "nested": {"pair": (1, 2)},
        "large": 2**62,
    }
    (stored,) = _stored([row], tmp_path)
    assert stored == {
        "array": [0, 1, 2],
        "scalar": 0.5,
        "missing": None,
        "path": "a/b",
        "day": "2020-01-02",
        "exact": "1.10",
        "nested": {"pair": [1, 2]},
        "large": 2**62,
    }


def test_images_travel_inside_the_rows(tmp_path: Path) -> None:
    picture = Image.new("RGB", (8, 6), (10, 20, 30))
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    content = buffer.getvalue()
    rows = [{"images": [picture, content, {"bytes": content, "path": None}, bytearray(content)]}]
    (stored,) = _stored(rows, tmp_path)
    for source in stored["images"]:
        assert decode(open_image(source, None)).tobytes() == picture.tobytes()


def test_paths_stay_what_they_are(tmp_path: Path) -> None:
    inputs = Inputs(tmp_path)
    assert data_files("org/name@train", "data", inputs) == "org/name@train"
    assert data_files(Path("a.jsonl"), "data", inputs) == "a.jsonl"
    assert data_files(["a.jsonl", Path("b.jsonl")], "data", inputs) == "a.jsonl,b.jsonl"
    with pytest.raises(UserError, match="joined by commas"):
        data_files(["a,b.jsonl", "c.jsonl"], "data", inputs)


def test_the_same_rows_have_the_same_file_and_others_another(tmp_path: Path) -> None:
    inputs = Inputs(tmp_path)
    first = data_files(ROWS, "data", inputs)
    assert data_files(list(ROWS), "data", inputs) == first
    assert data_files(ROWS[:1], "data", inputs) != first


def test_prompts_are_texts_rows_or_files(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(ROWS[0]) + "\n")
    for prompts, expected in (
        ("Why?", [{"prompt": "Why?", "answer": None}]),
        (["a", "b"], [{"prompt": "a", "answer": None}, {"prompt": "b", "answer": None}]),
        ([{"prompt": "a", "answer": 3}], [{"prompt": "a", "answer": 3}]),
        (str(file), [ROWS[0]]),
        ("a\0b", [{"prompt": "a\0b", "answer": None}]),
    ):
        (table,) = prompt_tables(prompts, "prompt", "answer", Path)
        assert table.rows == expected


class _Broken(list):
    def __iter__(self) -> Any:
        raise RuntimeError("no rows today")


def _circle() -> list[Any]:
    items: list[Any] = []
    items.append(items)
    return items


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (_Broken([{}]), "cannot be read: RuntimeError: no rows today"),
        ([{"a": _circle()}], "contains itself"),
        ([{"a": {1: 2}}], "the key 1 of a dict"),
        ([{"a": 1j}], "a value of type complex"),
        ([None], "row 1: expected a dict"),
        (5, "got 5"),
        (b"rows", "got b'rows'"),
        ({"a", "b"}, "got set"),
    ],
)
def test_what_cannot_be_stored_is_named(data: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        rows_as_lines(data, "data")
