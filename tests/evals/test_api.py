"""Evaluation over an API: limits, tries, a cache that goes on, and images that arrive as they were."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from evals.chat_server import ChatServer
from evals.conftest import read_lines
from PIL import Image
from whet_process import start, write_rows

from whet.evals import api

Run = Callable[..., str]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries follow each other at once."""
    monkeypatch.setattr(api, "FIRST_WAIT", 0.01)


@pytest.fixture
def questions(here: Path) -> str:
    """Twelve questions about numbers, whose answer is yes where they are even."""
    rows = [{"question": f"Is {n} even?", "answer": "yes" if n % 2 == 0 else "no", "part": n // 6} for n in range(12)]
    write_rows(here / "q.jsonl", rows)
    return "eval.definitions.even={files: q.jsonl, score: yes_no, category_keys: [part]}"


def evaluate(server: ChatServer, define: str, *arguments: str) -> tuple[str, ...]:
    address = f"eval.api.base_url={server.address}"
    return ("eval", "eval.via=api", address, define, "eval.datasets=[even]", "eval.output=out", *arguments)


def accuracy(folder: str = "out", name: str = "even") -> float:
    report = json.loads((Path(folder) / "report.json").read_text())
    return next(v["mean"] for k, v in report["datasets"][name]["metrics"].items() if k.startswith("avg@"))


def asked(body: dict[str, Any]) -> str:
    return body["messages"][-1]["content"]


def test_scores_requests_and_seeds(whet: Run, chat_server: ChatServer, questions: str) -> None:
    whet(*evaluate(chat_server, questions, "eval.n=3", "worker.rollout.temperature=0.5", "data.max_response_length=7"))
    assert accuracy() == 0.5  # it always says yes
    assert len(chat_server.asked) == 36
    first = chat_server.asked[0]
    assert (first["model"], first["temperature"], first["max_tokens"]) == ("tiny", 0.5, 7)
    assert len({body["seed"] for body in chat_server.asked}) == 36
    by_part = json.loads(Path("out/report.json").read_text())["datasets"]["even"]["by"]["part"]
    assert {name: group["questions"] for name, group in by_part.items()} == {"0": 6, "1": 6}


def test_no_more_requests_at_once_than_allowed(whet: Run, chat_server: ChatServer, questions: str) -> None:
    chat_server.seconds = 0.02
    whet(*evaluate(chat_server, questions, "eval.n=2", "eval.api.concurrency=3"))
    assert chat_server.most == 3


def test_no_more_requests_in_a_minute_than_allowed(whet: Run, chat_server: ChatServer, questions: str) -> None:
    whet(*evaluate(chat_server, questions, "eval.api.requests_per_minute=1200", "eval.api.model=tiny"))
    assert len(chat_server.times) == 12
    assert chat_server.times[-1] - chat_server.times[0] > 11 * 0.05 - 0.04


def test_what_passes_is_tried_again(whet: Run, chat_server: ChatServer, questions: str) -> None:
    chat_server.troubles = [(429, {}), (500, {}), (503, {"Retry-After": "0.3"}), (429, {"Retry-After": "soon"})]
    chat_server.drop = 3
    whet(*evaluate(chat_server, questions, "eval.api.concurrency=2"))
    assert len(chat_server.asked) == 12
    assert len(chat_server.times) == 12 + 4 + 3
    assert chat_server.times[-1] - chat_server.times[0] > 0.25


def test_what_does_not_pass_ends_it_and_the_next_goes_on(
    whet: Run, refused: Run, chat_server: ChatServer, questions: str
) -> None:
    arguments = evaluate(chat_server, questions, "eval.api.retries=1", "eval.api.concurrency=1")

    def break_down(body: dict[str, Any]) -> str:
        if len(chat_server.asked) == 5:
            chat_server.troubles = [(503, {})] * 2
            chat_server.reply = lambda body: "yes"
        return "yes"

    chat_server.reply = break_down
    message = refused(*arguments)
    assert "answered 503: trouble 503; gave up after 2 tries. The same command goes on" in message
    before = len(chat_server.asked)
    assert 0 < before < 12
    whet(*arguments)
    assert len(chat_server.asked) == 12
    whet(*arguments)
    assert len(chat_server.asked) == 12  # all of it is known


def test_killed_it_asks_nothing_twice(whet: Run, here: Path, chat_server: ChatServer, questions: str) -> None:
    chat_server.seconds = 0.05
    arguments = evaluate(chat_server, questions, "eval.api.concurrency=1")
    process = start(here, *arguments)
    cache = here / "out/api_cache.jsonl"
    assert process.wait_for(lambda: cache.exists() and cache.read_bytes().count(b"\n") > 4)
    process.kill()
    kept = cache.read_bytes().count(b"\n") - 1
    before = len(chat_server.times)
    whet(*arguments)
    assert len(chat_server.times) - before == 12 - kept
    assert accuracy() == 0.5


def test_a_question_that_is_refused_fails_alone(whet: Run, chat_server: ChatServer, questions: str) -> None:
    def reply(body: dict[str, Any]) -> str:
        if asked(body) == "Is 4 even?":
            raise ValueError("content filter")
        return "yes"

    chat_server.reply = reply
    out = whet(*evaluate(chat_server, questions, "eval.api.concurrency=1"))
    assert "1 of 12 samples failed, the first: /chat/completions answered 400: content filter" in out
    assert accuracy() == pytest.approx(5 / 12)
    (row,) = [row for row in read_lines("out/even/samples.jsonl") if row["failure"]]
    assert row["uid"] == "q.jsonl:5"


def test_settings_that_the_server_refuses_end_it_at_once(refused: Run, chat_server: ChatServer, questions: str) -> None:
    message = refused(
        *evaluate(chat_server, questions, "eval.api.extra_body={reasoning: low}", "eval.api.concurrency=1")
    )
    assert "the first question was refused: /chat/completions answered 400: unknown field ['reasoning']" in message


def test_keys(
    refused: Run, whet: Run, chat_server: ChatServer, questions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat_server.token = "secret"
    assert "Set the variable MY_KEY" in refused(*evaluate(chat_server, questions, "eval.api.key_env=MY_KEY"))
    monkeypatch.setenv("MY_KEY", "secret")
    whet(*evaluate(chat_server, questions, "eval.api.key_env=MY_KEY"))
    files = [path for path in Path("out").rglob("*") if path.is_file()]
    assert not any(b"secret" in path.read_bytes() for path in files)


def test_nobody_there_and_wrong_addresses(refused: Run, chat_server: ChatServer, questions: str) -> None:
    wrong = evaluate(chat_server, questions, f"eval.api.base_url={chat_server.address}/x", "eval.api.model=m")
    assert "Check eval.api.base_url" in refused(*wrong)
    nobody = evaluate(chat_server, questions, "eval.api.base_url=http://127.0.0.1:9/v1", "eval.api.retries=1")
    assert "cannot be reached" in refused(*nobody)


def test_images_arrive_where_they_stand_in_the_text(whet: Run, here: Path, chat_server: ChatServer) -> None:
    colours = [(255, 0, 0), (0, 0, 255)]
    for number, colour in enumerate(colours):
        Image.new("RGB", (40, 30), colour).save(here / f"{number}.png")
    rows = [
        {"question": "What colour?", "image": "0.png", "options": ["blue", "red"], "answer": "red", "id": 1},
        {
            "question": "First <image>, then <image>: the second?",
            "image": ["0.png", "1.png"],
            "options": ["blue", "red"],
            "answer": 0,
            "id": 2,
        },
        {"question": "No picture: what is 1 + 1?", "image": None, "options": ["2", "3"], "answer": "A", "id": 3},
    ]
    write_rows(here / "q.jsonl", rows)

    def reply(body: dict[str, Any]) -> str:
        parts = body["messages"][-1]["content"]
        if isinstance(parts, str):
            return r"\boxed{A}"
        shown = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
        picture = Image.open(io.BytesIO(base64.b64decode(shown[-1].removeprefix("data:image/png;base64,"))))
        assert picture.size == (20, 15)  # data.max_pixels
        return r"\boxed{B}" if picture.getpixel((3, 3)) == colours[0] else r"The answer is \boxed{blue}"

    chat_server.reply = reply
    define = (
        "eval.definitions.even={files: q.jsonl, score: choice, choices_key: options, image_key: image, image_dir: ., "
        "format_prompt: format_prompt/eval_choice.jinja}"
    )
    whet(*evaluate(chat_server, define, "data.max_pixels=300", "data.min_pixels=1"))
    assert accuracy() == 1
    by_text = {len(body["messages"][-1]["content"]): body["messages"][-1]["content"] for body in chat_server.asked}
    kinds = [[part["type"] for part in content] for content in by_text.values() if isinstance(content, list)]
    assert sorted(kinds) == [["image_url", "text"], ["text", "image_url", "text", "image_url", "text"]]
    text = next(content for content in by_text.values() if isinstance(content, str))
    assert "A. 2\nB. 3" in text


def test_bad_images_stop_or_are_left_out(whet: Run, refused: Run, here: Path, chat_server: ChatServer) -> None:
    Image.new("RGB", (8, 8)).save(here / "good.png")
    (here / "bad.png").write_bytes(b"no picture")
    rows = [{"question": "<image> q", "images": [f"{name}.png"], "answer": "yes"} for name in ("good", "bad", "good")]
    write_rows(here / "q.jsonl", rows)
    define = "eval.definitions.even={files: q.jsonl, score: yes_no, image_dir: .}"
    assert "q.jsonl:2: an image" in refused(*evaluate(chat_server, define))
    out = whet(*evaluate(chat_server, define, "data.on_bad_media=skip"))
    assert "left out: q.jsonl:2" in out
    assert json.loads(Path("out/report.json").read_text())["datasets"]["even"]["questions"] == 2
