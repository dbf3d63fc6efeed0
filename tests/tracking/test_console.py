"""The console: readable lines, plain where nobody watches, and proof against what models write."""

import io
import os
import threading

import pytest

from whet.tracking.console import Console
from whet.tracking.lines import visible
from whet.types import Prompt, Sample

STEP = {
    "reward/overall": 0.712,
    "reward/accuracy": 0.682,
    "reward/failed": 0,
    "response_length/mean": 143.4,
    "actor/kl_loss": 0.0021,
    "actor/entropy": 0.512,
    "actor/grad_norm": 0.83,
    "timing_s/step": 3.2,
    "timing_s/rollout": 1.9,
    "timing_s/reward": 0.1,
    "timing_s/update": 1.2,
    "perf/tokens_per_s": 1243.0,
}
HOSTILE = "\x1b[2J\x1b]0;owned\x07[bold red]x[/bold red] [/] \x9b31m \u202eabc\r\b\x00 \ud800 日本語 :smile:"


def sample(text=HOSTILE, prompt=HOSTILE):
    prompt = Prompt("a:1", [1], prompt, answer=HOSTILE)
    return Sample.written(prompt, [1], [0.0], "stop", text=text, scores={"overall": 0.5})


def say_everything(console):
    for name in ("rollout", "reward", "update"):
        with console.stage(name, 3) as advance:
            advance(1)
            console.warn(f"while {name} goes on: {HOSTILE}")
            advance(2)
    console.step(12, STEP)
    console.validation(12, {"val/reward": 0.7, "val/accuracy": 0.5, "val/pass@4": 0.9, f"val/{HOSTILE}": 1.0})
    console.samples_table([sample(), sample(text="long " * 2000)])
    console.note(HOSTILE)
    console.done(12, "/runs/a", 133.0, {"val/accuracy": 0.24}, {"val/accuracy": 0.91}, resume="whet train")


@pytest.fixture
def terminal(monkeypatch):
    """A real pseudo-terminal: the stream to print on, and a function that returns what arrived."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    master, slave = os.openpty()
    stream = os.fdopen(slave, "w", encoding="utf-8")
    chunks = []

    def pump():
        try:
            while chunk := os.read(master, 65536):
                chunks.append(chunk)
        except OSError:  # the slave side is closed: Linux says so with EIO
            pass

    reader = threading.Thread(target=pump)
    reader.start()

    def arrived():
        stream.close()
        reader.join()
        return b"".join(chunks).decode()

    yield stream, arrived
    stream.close()
    reader.join()
    os.close(master)


def test_a_step_is_one_line_in_full_where_there_is_no_terminal():
    stream = io.StringIO()
    Console(stream=stream, total_steps=60).step(12, STEP)
    assert stream.getvalue() == (
        "step 12/60  reward  0.712  acc  68.2%  len  143  kl 0.0021  entropy 0.51  grad  0.83    3.2s  "
        "(rollout 1.9 reward 0.1 update 1.2)    1,243 tok/s  2m 34s left\n"
    )


def test_columns_stay_in_place_from_step_to_step():
    stream = io.StringIO()
    console = Console(stream=stream, total_steps=600)
    console.step(1, STEP)
    console.step(
        100, {**STEP, "reward/overall": -0.5, "reward/accuracy": 1.0, "actor/grad_norm": 12.0, "timing_s/step": 31.0}
    )
    first, second = stream.getvalue().splitlines()
    assert [first.index(word) for word in ("reward", "kl", "grad", "(rollout")] == [
        second.index(word) for word in ("reward", "kl", "grad", "(rollout")
    ]


def test_trouble_is_shown_only_when_there_is_some():
    stream = io.StringIO()
    console = Console(stream=stream, total_steps=60)
    console.step(12, STEP)
    assert "failed" not in stream.getvalue()
    console.step(13, {**STEP, "reward/failed": 2, "actor/grad_skipped": 1})
    assert "rewards failed 2  updates skipped 1" in stream.getvalue()


def test_quiet_output_has_no_bars_and_no_escape_codes(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="utf-8")
    say_everything(Console(stream=stream, total_steps=60))
    stream.flush()
    text = raw.getvalue().decode()
    assert not [char for char in text if ord(char) < 32 and char != "\n"]
    assert not set(text) & set("\x7f\x9b\u202e")
    assert "[bold red]x[/bold red] [/]" in text
    assert ":smile:" in text
    assert "━" not in text
    assert "accuracy   24.0% → 91.0%" in text
    assert "resume     whet train" in text


def test_an_ascii_stream_does_not_stop_the_run():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    say_everything(Console(stream=stream, total_steps=60))
    stream.flush()
    assert b"24.0% ? 91.0%" in raw.getvalue()


def test_on_a_terminal_bars_come_and_go_and_lines_fit(terminal):
    stream, arrived = terminal
    console = Console(stream=stream, total_steps=60)
    say_everything(console)
    console.step(13, STEP)
    text = arrived()
    assert "━" in text
    assert "\x1b[2J" not in text
    assert "\x1b]0;" not in text
    assert "\x9b" not in text
    # A bar is erased before the next line is written, and the cursor is given back.
    assert "━" not in text.rsplit("\x1b[2K", 1)[1]
    assert text.count("\x1b[?25h") == text.count("\x1b[?25l") > 0
    last = [line for line in text.splitlines() if "13/60" in line][-1]
    assert len(without_colours(last)) <= 80
    assert "0.712" in last
    assert "3.2s" in last


def test_quiet_is_plain_on_a_terminal_too(terminal):
    stream, arrived = terminal
    say_everything(Console(quiet=True, stream=stream, total_steps=60))
    assert "\x1b" not in arrived()


def test_stages_nest_and_a_failing_stage_gives_the_terminal_back(terminal):
    stream, arrived = terminal
    console = Console(stream=stream, total_steps=60)
    with pytest.raises(ZeroDivisionError):
        fail_inside_a_stage(console)
    with console.stage("validate", None) as advance:
        advance(1)
    text = arrived()
    assert text.count("\x1b[?25h") == text.count("\x1b[?25l") == 2


def fail_inside_a_stage(console):
    with console.stage("validate", 2), console.stage("rollout", 2):
        raise ZeroDivisionError


def test_the_log_file_gets_the_lines_and_appends(tmp_path):
    for step in (1, 2):
        Console(stream=io.StringIO(), total_steps=2, log=tmp_path / "run.log").step(step, {"reward/overall": 0.5})
    assert (tmp_path / "run.log").read_text() == "step 1/2  reward  0.500\nstep 2/2  reward  0.500\n"


def test_a_log_file_that_fails_does_not_stop_the_run(tmp_path):
    stream = io.StringIO()
    console = Console(stream=stream, total_steps=2, log=tmp_path)
    console.note("one")
    console.note("two")
    assert stream.getvalue().splitlines()[0] == "one"
    assert stream.getvalue().count("log file cannot be written") == 1
    assert stream.getvalue().splitlines()[-1] == "two"


def test_visible_keeps_text_and_marks_the_rest():
    assert visible("a\tb\r\nc\x1b[0m") == "a b\nc\ufffd[0m"
    assert visible("é ñ 日本 🙂 👩\u200d👧") == "é ñ 日本 🙂 👩\u200d👧"


def without_colours(text):
    parts = text.replace("\r", "").split("\x1b")
    return parts[0] + "".join(part.partition("m")[2] for part in parts[1:])
