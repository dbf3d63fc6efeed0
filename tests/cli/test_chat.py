"""`whet chat`: answers of a run's model under its own template, in one conversation, until the input ends."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from patience import PATIENCE
from whet_process import start

from whet.cli import main
from whet.evals.terminal_chat import Chat
from whet.rollout.engine import Engine

Talk = Callable[..., str]


@pytest.fixture
def talk(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Talk:
    """Send lines to `whet chat` and return what it prints."""

    def run(lines: str, *arguments: str, code: int = 0) -> str:
        monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
        assert main(["chat", *arguments]) == code
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return out + err

    return run


def test_answers_are_those_of_the_run(finished_run: Path, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = []
    stream = Chat._answer

    def note(self: Chat, prompt, write):
        prompts.append(prompt.text)
        return stream(self, prompt, write)

    monkeypatch.setattr(Chat, "_answer", note)
    lines = "Sort these digits: 5 2 9\n\nAnd these: 3 1\n/new\nSort these digits: 5 2 9\n"
    out = talk(lines, str(finished_run), "worker.rollout.temperature=0")
    first, second, again = out.splitlines()[-3:]
    assert f"checkpoint: {finished_run}" in out
    assert first == again
    assert any(char.isdigit() for char in first)
    # 1. the run's own template, 2. the conversation so far, 3. which /new has ended
    assert prompts[0] == '<|user|>Sort these digits: 5 2 9\nBegin with "Answer:"<|end|><|assistant|>'
    assert prompts[1].startswith(prompts[0] + first.partition(" [cut at")[0] + "<|end|><|user|>And these: 3 1")
    assert prompts[2] == prompts[0]
    assert second != ""


def test_a_conversation_that_is_too_long_is_said_and_goes_on(finished_run: Path, talk: Talk) -> None:
    out = talk("x " * 2000 + "\nSort these digits: 5 2 9\n", str(finished_run))
    *_, long, short = out.splitlines()
    assert "whet: the conversation has" in long
    assert "/new starts a new one" in long
    assert short.strip()


def test_any_model_can_be_talked_to(quickstart: Path, talk: Talk) -> None:
    out = talk("Sort these digits: 5 2 9\n", "whet/quickstart", "data.max_response_length=3", "worker.rollout.seed=3")
    assert out.startswith("model: whet/quickstart\n")
    out = talk("", code=2)
    assert "whet chat takes a run folder, a checkpoint or a model" in out


def test_control_characters_of_a_model_do_not_reach_the_terminal(finished_run: Path, talk: Talk, monkeypatch) -> None:
    monkeypatch.setattr(Chat, "_text", lambda self, ids: "\x1b[2Jgone"[: len(ids)])
    assert "\x1b" not in talk("Sort these digits: 5 2 9\n", str(finished_run))


def test_interrupting_ends_it_without_an_error(finished_run: Path, tmp_path: Path) -> None:
    """Ctrl-C while it waits for a message: a process of its own, as the signal comes from outside."""
    os.mkfifo(tmp_path / "keyboard")
    process = start(tmp_path, "chat", str(finished_run), typed=tmp_path / "keyboard")
    with (tmp_path / "keyboard").open("w") as keyboard:  # which waits until the other side has it open
        print("Sort these digits: 5 2 9", file=keyboard, flush=True)
        assert process.wait_for(lambda: process.text().count("\n") >= 3), process.text()  # checkpoint, model, answer
        assert process.text().splitlines()[2].strip()
        process.signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0, process.text()
    assert "Traceback" not in process.text()


def test_the_engine_is_closed(finished_run: Path, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Engine] = []
    start = Chat.__init__

    def note(self: Chat, policy, engine: Engine) -> None:
        opened.append(engine)
        start(self, policy, engine)

    monkeypatch.setattr(Chat, "__init__", note)
    closed = []
    from whet.rollout.engines.native.engine import NativeEngine

    close = NativeEngine.close
    monkeypatch.setattr(NativeEngine, "close", lambda self: (closed.append(self), close(self))[1])
    talk("hello\n", str(finished_run))
    assert closed == opened
