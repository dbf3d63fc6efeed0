"""Loggers of a user's own: by file, by decorator, and every mistake in one as a sentence."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

import whet
from whet.config import check_files, load_config
from whet.config.schema.trainer import LOGGERS
from whet.errors import UserError
from whet.tracking import Tracker
from whet.tracking.console import Console
from whet.tracking.logger import METHODS, Logger, RunInfo, open_logger
from whet.tracking.run_folder import RunFolder

OWN = """
import whet

class Own(whet.Logger):
    def __init__(self, run):
        self.file = run.folder / "own.txt"

    def log(self, step, metrics):
        with self.file.open("a") as file:
            print(step, sorted(metrics), file=file)

class Bare:
    def __init__(self, run): ...
    def log(self, step, metrics): ...

class Broken(whet.Logger):
    def __init__(self, run):
        raise OSError("no such server")

class Failing(whet.Logger):
    def __init__(self, run): ...
    def log(self, step, metrics):
        raise OSError("the server went away")

VALUE = 3
"""


@pytest.fixture(autouse=True)
def own_names() -> Iterator[None]:
    """Names registered by a test are gone after it."""
    yield
    LOGGERS._registered.clear()


@pytest.fixture
def screen() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def tracker(tmp_path: Path, screen: io.StringIO) -> Iterator:
    (tmp_path / "own.py").write_text(OWN)
    folder = RunFolder(tmp_path / "run")

    def build(*loggers: str) -> Tracker:
        return Tracker(loggers, folder, Console(stream=screen), "p", "e", resolve=lambda name: tmp_path / name)

    yield build
    folder.close()


def test_the_files_are_the_names() -> None:
    assert LOGGERS.names == ("console", "file", "mlflow", "swanlab", "tensorboard", "wandb")
    for name in LOGGERS.names:
        assert all(callable(getattr(LOGGERS.find(name), method)) for method in METHODS)


def test_a_logger_in_a_file(tracker, tmp_path: Path) -> None:
    made = tracker("own.py:Own")
    made.log(3, {"b": 1.0, "a": 2.0})
    made.table(3, [])
    made.close()
    assert (tmp_path / "run" / "own.txt").read_text() == "3 ['a', 'b']\n"


def test_a_registered_logger_is_a_choice(tracker) -> None:
    seen = []

    @whet.logger("noting")
    class Noting(whet.Logger):
        def __init__(self, run: RunInfo) -> None:
            seen.append(run.experiment)

    assert load_config(["trainer.logger=[file,noting]"]).trainer.logger == ["file", "noting"]
    tracker("noting").close()
    assert seen == ["e"]
    assert Logger in Noting.__mro__


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("own.py:Nothing", r"trainer\.logger=own\.py:Nothing: .*own\.py defines no Nothing"),
        ("own.py:VALUE", r"own\.py:VALUE is of type int; it must be a class of loggers"),
        ("own.py:Bare", r"makes a Bare without table, close; derive its class from whet\.Logger"),
        ("own.py:Broken", r"own\.py:Broken could not start: OSError: no such server"),
        ("absent.py:Own", r"there is no file .*absent\.py"),
        ("consol", r"trainer\.logger=consol: is not one of console, .*did you mean console\?"),
    ],
)
def test_mistakes_are_sentences(tracker, name: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        tracker(name)


def test_a_logger_that_fails_does_not_stop_the_run(tracker, screen: io.StringIO) -> None:
    made = tracker("own.py:Failing", "file")
    for step in (1, 2):
        made.log(step, {"a": 1.0})
    made.close()
    assert screen.getvalue().count("the server went away") == 1


@pytest.mark.parametrize("name", ["console", "two words", 3])
def test_names_that_cannot_be_registered(name) -> None:
    with pytest.raises(UserError, match=r"cannot be registered|in parentheses"):
        whet.logger(name)(lambda run: None)


def test_a_missing_file_is_named_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    with pytest.raises(UserError, match=r"trainer\.logger=.*onw\.py: there is no such file; did you mean .*own\.py"):
        check_files(load_config([f"trainer.logger=[{tmp_path / 'onw.py'}:Own]"]))
    with pytest.raises(UserError, match=r"consol is not one of console, .*nor a file such as logger\.py:CLASS"):
        load_config(["trainer.logger=[consol]"])


def test_open_logger_needs_no_tracker(tmp_path: Path, screen: io.StringIO) -> None:
    run = RunInfo(tmp_path, "p", "e", Console(stream=screen))
    open_logger("file", run).log(1, {"a": 1.0})
    assert (tmp_path / "metrics.jsonl").is_file()
