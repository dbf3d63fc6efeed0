from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from whet.data.formats import read_file
from whet.errors import UserError

ROWS = [{"prompt": "one, two", "answer": "3"}, {"prompt": "zwei\nZeilen\u2028 – ünï", "answer": "4"}]


def write(path, kind):
    if kind == "jsonl":
        path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS), encoding="utf-8")
    elif kind == "json":
        path.write_text(json.dumps(ROWS), encoding="utf-8")
    elif kind == "csv":
        path.write_text('prompt,answer\n"one, two",3\n"zwei\nZeilen\u2028 – ünï",4\n', encoding="utf-8", newline="")
    elif kind == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    elif kind == "arrow":
        table = pa.Table.from_pylist(ROWS)
        with pa.ipc.new_stream(str(path), table.schema) as writer:
            writer.write_table(table)
    return path


@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "parquet", "arrow"])
def test_every_kind_gives_the_same_rows(tmp_path, kind):
    assert read_file(write(tmp_path / f"data.{kind}", kind)) == ROWS


def test_arrow_file_format(tmp_path):
    table = pa.Table.from_pylist(ROWS)
    with pa.ipc.new_file(str(tmp_path / "data.arrow"), table.schema) as writer:
        writer.write_table(table)
    assert read_file(tmp_path / "data.arrow") == ROWS


def test_extension_in_capitals(tmp_path):
    assert read_file(write(tmp_path / "DATA.JSONL", "jsonl")) == ROWS


def test_parquet_values_are_plain_python(tmp_path):
    table = pa.table({"n": pa.array([1], pa.int16()), "xs": [[1.5]], "s": [{"a": b"bytes"}]})
    pq.write_table(table, tmp_path / "t.parquet")
    (row,) = read_file(tmp_path / "t.parquet")
    assert row == {"n": 1, "xs": [1.5], "s": {"a": b"bytes"}}
    assert type(row["n"]) is int
    assert type(row["xs"]) is list


@pytest.mark.parametrize(
    "text",
    ['{"data": [{"a": 1}, {"a": 2}], "version": 3}', '{"a": 1}\n{"a": 2}\n', '\ufeff[{"a": 1}, {"a": 2}]'],
    ids=["object with one list", "JSON lines called .json", "byte order mark"],
)
def test_json_shapes(tmp_path, text):
    path = tmp_path / "data.json"
    path.write_text(text, encoding="utf-8")
    assert read_file(path) == [{"a": 1}, {"a": 2}]


def test_blank_lines_and_byte_order_mark_in_json_lines(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n\r\n{"a": 2}\n\n')
    assert read_file(path) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("d.jsonl", b'{"a": 1}\n{"a": \n', r"d\.jsonl:2: not valid JSON"),
        ("d.jsonl", b'{"a": 1}\n[1]\n', r"d\.jsonl:2: a row must be a JSON object .* is a list"),
        ("d.jsonl", b'{"a": 1}\n{"a": "\xff"}\n', r"d\.jsonl:2: not UTF-8"),
        ("d.jsonl", b"", "holds no rows"),
        ("d.jsonl", b"\n \n", "holds no rows"),
        ("d.json", b"", "holds no rows"),
        ("d.json", b"[]", "holds no rows"),
        ("d.json", b'[{"a": 1},\n {"a": }]', r"d\.json:2: not valid JSON"),
        ("d.json", b'[{"a": 1}, null]', r"d\.json, row 2: a row must be a JSON object .* is a null"),
        ("d.json", b'{"train": [], "test": []}', r"found 2 lists \(train, test\)"),
        ("d.json", b'{"train": 1}', "found no list"),
        ("d.json", b"7", "this file holds a number"),
        ("d.json", b'[{"a": 1},\n\n{"a": "\xff"}]', r"d\.json:3: not UTF-8"),
        ("d.csv", b"", "holds no rows"),
        ("d.csv", b"a,b\n", "holds no rows"),
        ("d.csv", b"a,b\n1,2\n3\n", r"d\.csv:3: 1 cells under 2 column names"),
        ("d.csv", b"a,b\n1,2,3\n", r"d\.csv:2: 3 cells under 2"),
        ("d.csv", b"a,a\n1,2\n", r"d\.csv:1: .* name each column once"),
        ("d.csv", b"a;b\n1;2\n", r"d\.csv:1: the columns are separated by ';'"),
        ("d.jsonl", b'[{"a": 1}]\n', r"d\.jsonl:1: .* is a list. A file .* is named .json"),
        ("d.csv", b'a,b\n1,"2" x\n', r"d\.csv:2: not valid CSV"),
        ("d.csv", b"a,b\n1,\xff\n", r"d\.csv:2: not UTF-8"),
        ("d.parquet", b"not parquet at all", r"d\.parquet: not a readable Parquet file"),
        ("d.parquet", b"", r"d\.parquet: not a readable Parquet file"),
        ("d.arrow", b"not arrow at all", r"d\.arrow: not a readable Arrow file"),
        ("d.xlsx", b"x", r"kind '\.xlsx'. Known: \.jsonl, \.json, \.csv, \.parquet, \.arrow"),
        ("d.jsonl.gz", b"x", r"kind '\.gz'.* Unpack it"),
        ("d", b"x", r"kind 'without extension'"),
    ],
)
def test_errors_name_file_and_line(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_file(path)
