"""A journal holds what was added, loses at most a torn line, and refuses other work and a second process."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from whet.errors import UserError
from whet.tracking.journal import Journal

ABOUT = {"model": "m", "n": 2, "stop": ("a",)}


def write(path: Path, keys: list[str]) -> None:
    with Journal(path, ABOUT) as journal:
        for key in keys:
            journal.add(key, {"text": f"é\n{key}"})


def test_records_are_there_again(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "j.jsonl"
    write(path, ["a", "b"])
    with Journal(path, ABOUT) as journal:
        assert len(journal) == 2
        assert "b" in journal
        assert "c" not in journal
        journal.add("a", {"text": "second"})  # the first stays
        journal.add("c", {"text": "ü"})
        assert [journal[key]["text"] for key in "abc"] == ["é\na", "é\nb", "ü"]


@pytest.mark.parametrize("size", [1, 2, 3, 17])
def test_reading_in_blocks_finds_every_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    write(tmp_path / "j", ["a", "b", "c"])
    monkeypatch.setattr("whet.tracking.journal.READ_BYTES", size)
    with Journal(tmp_path / "j", ABOUT) as journal:
        assert [journal[key]["text"] for key in "abc"] == ["é\na", "é\nb", "é\nc"]


def test_a_file_cut_anywhere_goes_on_with_the_whole_lines_before(tmp_path: Path) -> None:
    path = tmp_path / "j"
    write(path, ["a", "b", "c"])
    data = path.read_bytes()
    ends = [at + 1 for at, byte in enumerate(data) if byte == 10]
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        whole = max(0, sum(end <= cut for end in ends) - 1)  # the first line says what it is about
        with Journal(path, ABOUT) as journal:
            assert len(journal) == whole
            for key in "abc":
                journal.add(key, {"text": f"é\n{key}"})
        assert path.read_bytes() == data


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path / "j", ["a"])
    with pytest.raises(UserError, match=r"with n=2 \(now 3\): go on with the same settings"):
        Journal(tmp_path / "j", ABOUT | {"n": 3})


def test_damage_and_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "j"
    write(path, ["a", "b"])
    first, second, third = path.read_text().splitlines(keepends=True)
    path.write_text(f"{first}{second[:10]}\n{third}")
    with pytest.raises(UserError, match=r"j:2: damaged"):
        Journal(path, ABOUT)
    path.write_text(json.dumps({"question": "?"}) + "\n")
    with pytest.raises(UserError, match="was not written by whet"):
        Journal(path, ABOUT)


def _hold(path: str, ready: multiprocessing.synchronize.Event, end: multiprocessing.synchronize.Event) -> None:
    with Journal(Path(path), ABOUT):
        ready.set()
        end.wait(30)


def test_one_process_has_it_at_a_time(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready, end = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(str(tmp_path / "j"), ready, end))
    other.start()
    try:
        assert ready.wait(60)
        with pytest.raises(UserError, match="in use by another process"):
            Journal(tmp_path / "j", ABOUT)
    finally:
        end.set()
        other.join(30)
    Journal(tmp_path / "j", ABOUT).close()
