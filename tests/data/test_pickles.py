"""Pickles of rows: plain values are read, everything that would run code or fill memory is refused."""

from __future__ import annotations

import builtins
import datetime
import os
import pickle
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whet.data.files import read_rows
from whet.errors import UserError

ROW = {
    "data_source": "train-math-deepscaler",
    "prompt": [{"role": "user", "content": "1 + 1 = ?"}],
    "ability": "math",
    "reward_model": {"ground_truth": ["2"], "style": "rule"},
    "extra_info": {"index": 7, "split": "train", "model_difficulty": {"DeepSeek-R1-Distill-Qwen-7B": 15}},
}
CODE = ROW | {"reward_model": {"ground_truth": {"inputs": ["1\n", "2\n"], "outputs": ["2", "4"]}, "style": "rule"}}


def read(path: Path) -> list[dict[str, Any]]:
    return read_rows(str(path))


def refused(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(UserError) as raised:
        read(path)
    return str(raised.value)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_rows_of_plain_values(tmp_path: Path, protocol: int) -> None:
    odd = {
        "text": "π\n😀",
        "big": 2**62,
        "negative": -5,
        "float": 0.25,
        "flags": [True, False, None],
        "pair": (1, (2,)),
    }
    rows = [ROW, CODE, odd, ROW, {"empty": [], "nothing": {}}]
    (tmp_path / "train.pkl").write_bytes(pickle.dumps(rows, protocol))
    wanted = [ROW, CODE, odd | {"pair": [1, [2]]}, ROW, {"empty": [], "nothing": {}}]
    assert read(tmp_path / "train.pkl") == wanted


def test_bytes_and_the_only_list_of_a_mapping(tmp_path: Path) -> None:
    (tmp_path / "a.pkl").write_bytes(pickle.dumps({"rows": [{"image": b"\x89PNG"}], "version": 1}))
    assert read(tmp_path / "a.pkl") == [{"image": b"\x89PNG"}]


class _Calls:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("name", ["system", "eval", "exec", "getattr", "import", "setstate"])
def test_nothing_is_called(tmp_path: Path, name: str, protocol: int) -> None:
    mark = tmp_path / "ran"
    code = f"open({str(mark)!r}, 'w')"
    hostile = {
        "system": _Calls(os.system, f"touch {mark}"),
        "eval": _Calls(builtins.eval, code),
        "exec": _Calls(builtins.exec, code),
        "getattr": _Calls(builtins.getattr, _Calls(builtins.__import__, "os"), "system"),
        "import": _Calls(builtins.__import__, "antigravity"),
        "setstate": Path("a"),
    }[name]
    said = refused(tmp_path / "a.pkl", pickle.dumps([{"prompt": "x", "answer": hostile}], protocol))
    assert "only plain values are read" in said
    assert not mark.exists()


def test_the_message_names_what_the_file_asks_for(tmp_path: Path) -> None:
    assert "posix.system" in refused(tmp_path / "a.pkl", b"cposix\nsystem\n(S'touch x'\ntR.")
    assert "posix.system" in refused(tmp_path / "a.pkl", pickle.dumps([_Calls(os.system, "true")], 4))
    for value in (np.array([1]), np.float64(1), datetime.date(2024, 1, 1), complex(1, 2), {1, 2}, bytearray(b"x")):
        assert "a.pkl" in refused(tmp_path / "a.pkl", pickle.dumps([{"x": value}]))


@pytest.mark.parametrize(
    "data",
    [
        b"cos\nsystem\n.",
        b"(ios\nsystem\n.",  # INST
        b"(cos\nsystem\no.",  # OBJ
        b"Pid\n.",  # persistent id
        b"]\x82\x01.",  # extension registry
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"\x80\x05\x97.",  # out-of-band buffer
    ],
)
def test_every_opcode_that_reaches_further_is_refused(tmp_path: Path, data: bytes) -> None:
    assert "a.pkl" in refused(tmp_path / "a.pkl", data)


def test_small_files_cannot_fill_memory(tmp_path: Path) -> None:
    began = time.monotonic()
    laughs: Any = "ha"
    for _ in range(45):
        laughs = [laughs, laughs]  # 2^45 values in a few hundred bytes
    assert "repeats values" in refused(tmp_path / "a.pkl", pickle.dumps([{"x": laughs}]))
    wide: Any = ["ha"] * 1000
    for _ in range(3):
        wide = [wide] * 1000  # 10^12
    assert "repeats values" in refused(tmp_path / "a.pkl", pickle.dumps([{"x": wide}]))
    assert "repeats values" in refused(tmp_path / "a.pkl", pickle.dumps([{"x": ["ha"] * 2000}] * 2_000))
    itself: list[Any] = []
    itself.append(itself)
    assert "holds itself" in refused(tmp_path / "a.pkl", pickle.dumps([{"x": itself}]))
    # A text, a number and a memo slot of sizes that the file does not have.
    assert "not a readable pickle" in refused(tmp_path / "a.pkl", b"\x80\x04\x8d" + struct.pack("<Q", 1 << 40) + b"x.")
    assert "not a readable pickle" in refused(tmp_path / "a.pkl", b"\x80\x04\x8b" + struct.pack("<i", 1 << 30) + b"1.")
    (tmp_path / "b.pkl").write_bytes(b"\x80\x02]}r\xff\xff\xff\x7fa.")
    assert read(tmp_path / "b.pkl") == [{}]  # slot 2,147,483,647 of the memo costs one entry
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(
    "data",
    [
        b"\x80",
        b"not a pickle",
        b"\x80\x04]",
        b".",
        b"e.",
        b"(.",
        b"]K\x01s.",
        b"}(K\x01K\x02u.",
        b"g5\n.",
        b"](K\x01.",
        b"}K\x01a.",
    ],
)
def test_damaged_files_are_refused_in_a_sentence(tmp_path: Path, data: bytes) -> None:
    assert "a.pkl" in refused(tmp_path / "a.pkl", data)


def test_deep_nesting_and_wrong_shapes(tmp_path: Path) -> None:
    assert "this one is a list" in refused(tmp_path / "a.pkl", b"]" * 200_000 + b"a" * 199_999 + b".")
    deep: Any = 1
    for _ in range(80):
        deep = [deep]
    assert "50 levels" in refused(tmp_path / "a.pkl", pickle.dumps([{"x": deep}]))
    assert "this one is a list" in refused(tmp_path / "a.pkl", pickle.dumps([[1]]))
    assert "this is a str" in refused(tmp_path / "a.pkl", pickle.dumps("rows"))
    assert "holds no rows" in refused(tmp_path / "a.pkl", pickle.dumps([]))
    assert "holds no rows" in refused(tmp_path / "a.pkl", b"")
    assert "an int where a str" in refused(tmp_path / "a.pkl", pickle.dumps([{1: 2}])).replace("a int", "an int")
