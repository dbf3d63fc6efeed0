"""Built-in tools: programs in the sandbox, and search over files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from whet.errors import UserError
from whet.tools.builtin.python import MOST_CHARACTERS, Python
from whet.tools.builtin.search import Search
from whet.tools.loading import load_tools


@pytest.fixture(scope="module")
def python() -> Iterator[Python]:
    tool = Python(keeps_state=True, timeout=3.0)
    yield tool
    tool.close()


def test_python_returns_what_a_program_prints(python: Python) -> None:
    result = python.execute("a", {"code": "print(2 + 3)"})
    assert (result.content.strip(), result.failed) == ("5", False)
    assert python.execute("a", {"code": "x = 1"}).content.startswith("(no output")
    long = python.execute("a", {"code": f"print('x' * {3 * MOST_CHARACTERS})"})
    assert "characters left out" in long.content
    assert len(long.content) < 1.1 * MOST_CHARACTERS


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("print(", "SyntaxError"),
        ("while True: pass", "timeout"),
        ("open('/etc/passwd').read()", ""),
        ("import socket; socket.create_connection(('127.0.0.1', 9), 1)", ""),
    ],
)
def test_python_programs_that_fail_say_so(python: Python, code: str, words: str) -> None:
    result = python.execute("b", {"code": code})
    assert result.failed
    assert words in result.content


def test_python_keeps_what_a_sample_defined_and_not_for_others(python: Python) -> None:
    python.execute("c", {"code": "def double(x):\n    return 2 * x\nprint('once')"})
    python.execute("c", {"code": "double = None; 1 / 0"})  # failed, so it is not there afterwards
    assert python.execute("c", {"code": "print(double(4))"}).content.strip() == "8"
    assert "NameError" in python.execute("d", {"code": "print(double(4))"}).content
    python.release("c")
    assert "NameError" in python.execute("c", {"code": "print(double(4))"}).content


PASSAGES = ["Bern is the capital of Switzerland.", "Rome is in Italy.", "The Rhine passes Basel."]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_search_reads_both_kinds_of_files(tmp_path: Path, kind: str) -> None:
    corpus = tmp_path / f"docs.{kind}"
    if kind == "jsonl":
        corpus.write_text("".join(json.dumps({"passage": text}) + "\n" for text in PASSAGES))
    else:
        pq.write_table(pa.table({"passage": PASSAGES}), corpus)
    (tool,) = load_tools(["search"], {"search": {"corpus": str(corpus), "count": 1}})
    assert tool.execute("a", {"query": "capital of switzerland"}).content == f"[1] {PASSAGES[0]}"
    assert tool.execute("a", {"query": "zebra"}).content == "nothing found"


def test_search_refuses_files_without_passages(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no corpus nowhere\.jsonl"):
        Search("nowhere.jsonl")
    (tmp_path / "docs.jsonl").write_text('{"title": "x"}\n')
    with pytest.raises(UserError, match=r"docs\.jsonl"):
        Search(str(tmp_path / "docs.jsonl")).execute("a", {"query": "x"})
