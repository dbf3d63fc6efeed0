"""A folder to work in, and `whet` in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from whet.cli import main


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test works in a folder of its own, without a network."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path


@pytest.fixture
def whet(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that must go well; returns what it printed."""

    def run(*arguments: str) -> str:
        code = main(list(arguments))
        out, err = capsys.readouterr()
        assert code == 0, out + err
        return out

    return run


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that must be refused; returns the message."""

    def run(*arguments: str) -> str:
        code = main(list(arguments))
        out, err = capsys.readouterr()
        assert code == 2, out + err
        assert "Traceback" not in out + err
        return err

    return run
