"""Requests to a run that is going on: what the loop does with them, between two steps."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from whet.config import Config
from whet.tracking.requests import ask
from whet.training.fit import FitLoop
from whet.training.state import RunState


class Loop(FitLoop):
    """Steps that do nothing but ask themselves for something, and note what the loop called."""

    def __init__(self, folder: Path, asks: dict[int, list[str]]) -> None:
        store: Any = SimpleNamespace(
            folder=SimpleNamespace(path=folder, metrics=folder / "metrics.jsonl", curves=folder / "curves.svg"),
            tracker=SimpleNamespace(log=lambda step, metrics: None),
            checkpoint=None,
        )
        self.said: list[str] = []
        console: Any = SimpleNamespace(warn=print, note=self.said.append, done=lambda *_: None, total_steps=0)
        super().__init__(Config(), store, SimpleNamespace(asked=False), console, 6)  # type: ignore[arg-type]
        self.state, self._asks, self._folder = RunState(), asks, folder
        self.called: list[str] = []

    trained = property(lambda self: {})  # type: ignore[assignment]

    def train_step(self) -> dict[str, float]:
        for action in self._asks.get(self.state.step, []):
            ask(self._folder, action)
        return {}

    def validate(self) -> dict[str, float]:
        self.called.append(f"validate {self.state.step}")
        self.state.latest = {"step": self.state.step}
        return {}

    def save(self) -> None:
        self.called.append(f"save {self.state.step}")

    def restore(self) -> None: ...


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whet.training.curves.Curves.draw", lambda self: None)


def test_each_request_is_done_once_after_its_step(tmp_path: Path, quiet: None) -> None:
    ask(tmp_path, "stop")  # to an earlier process
    loop = Loop(tmp_path, {2: ["save"], 3: ["validate", "save"], 4: ["stop"]})
    loop.fit()
    assert loop.called == ["validate 0", "save 2", "validate 3", "save 3", "save 4"]
    assert loop.state.step == 4
    assert loop.interrupt.asked
    assert "asked to save and to validate after step 3" in loop.said
    assert not any((tmp_path / "requests").iterdir())
