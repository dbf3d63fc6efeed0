"""A server scores samples: what it is asked, its failures, its token, and the rate of requests."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from whet.config.schema.reward import RemoteRewardConfig, RewardConfig
from whet.errors import UserError
from whet.rewards.pace import Pace, TooSlowError
from whet.rewards.scorer import RewardScorer
from whet.types import Prompt, Sample


class Server(ThreadingHTTPServer):
    """Answers with the length of each response; the path says how."""

    asked: list[dict]
    tokens: list[str | None]
    failures = 0  # to come


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        self.server.tokens.append(self.headers.get("Authorization"))
        scores = [{"overall": len(text), "accuracy": 1.0} for text in body["responses"]]
        status, text = 200, json.dumps({"scores": scores} if self.path == "/named" else scores)
        if self.server.failures > 0:
            self.server.failures -= 1
            status = 503
        elif self.path == "/moved":
            status = 302
        elif self.path == "/private":
            status = 401
        elif self.path == "/text":
            text = "hello"
        elif self.path == "/few":
            text = json.dumps(scores[1:])
        elif self.path == "/bad" and any(each == "bad" for each in body["responses"]):
            status = 422
        self.send_response(status)
        self.send_header("Location", "/scores")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as built:
        threading.Thread(target=built.serve_forever, daemon=True).start()
        yield built
        built.shutdown()


@pytest.fixture
def server(running) -> Server:
    running.asked, running.tokens, running.failures = [], [], 0
    return running


def samples(*texts: str) -> list[Sample]:
    rows = [Prompt(f"row:{i}", [1], "q", i, {"raw": b"\x00", "level": 3}) for i in range(len(texts))]
    return [Sample.written(row, [1, 2], [0.0, 0.0], "stop", text=text) for row, text in zip(rows, texts)]


def scorer(server: Server, path: str = "", **changes) -> RewardScorer:
    remote = RemoteRewardConfig(**changes.pop("remote", {"retries": 1}))
    url = f"http://127.0.0.1:{server.server_address[1]}{path}"
    return RewardScorer("", RewardConfig(num_cpus=1, url=url, remote=remote, **changes))


@pytest.mark.parametrize("path", ["/scores", "/named"])
def test_a_batch_is_one_request(server, path, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "s3cret")
    scored = samples("a", "bcd")
    with scorer(server, path, remote={"token_env": "MY_TOKEN"}) as opened:
        assert opened.score(scored)["reward/failed"] == 0
    assert [each.scores for each in scored] == [{"overall": 1.0, "accuracy": 1.0}, {"overall": 3.0, "accuracy": 1.0}]
    (asked,) = server.asked
    assert asked["responses"] == ["a", "bcd"]
    assert asked["ground_truths"] == [0, 1]
    assert asked["rows"][1] == {"prompt": "q", "raw": "AA==", "level": 3, "response_length": 2}
    assert server.tokens == ["Bearer s3cret"]


def test_samples_may_be_sent_one_by_one(server):
    scored = samples("a", "bcd")
    with scorer(server, reward_type="sequential") as opened:
        opened.score(scored)
    assert [each.scores["overall"] for each in scored] == [1.0, 3.0]
    assert len(server.asked) == 2


def test_a_busy_server_is_asked_again(server):
    server.failures = 1
    scored = samples("a")
    with scorer(server) as opened:
        assert opened.score(scored)["reward/failed"] == 0
    assert len(server.asked) == 2


def test_a_sample_that_the_server_refuses_costs_no_other(server):
    scored = samples("good", "bad", "fine")
    with scorer(server, "/bad", fallback=-1.0) as opened:
        assert opened.score(scored)["reward/raised"] == 1
    assert [each.scores["overall"] for each in scored] == [4.0, -1.0, 4.0]


@pytest.mark.parametrize("path", ["/text", "/few", "/moved"])
def test_answers_that_are_no_scores_fail_the_samples(server, path):
    scored = samples("a", "b")
    with scorer(server, path) as opened:
        assert opened.score(scored)["reward/failed"] == 2


def test_a_server_that_fails_is_not_asked_for_every_sample(server):
    server.failures = 100
    scored = samples(*"abcdefgh")
    with scorer(server, remote={"retries": 0}) as opened:
        assert opened.score(scored)["reward/failed"] == 8
    assert len(server.asked) == 1


@pytest.mark.parametrize(("path", "named"), [("/private", r"\$WHET_REWARD_TOKEN"), (None, "cannot be reached")])
def test_a_server_that_cannot_score_is_an_error_before_work(server, path, named):
    opened = (
        scorer(server, path)
        if path
        else RewardScorer("", RewardConfig(num_cpus=1, url="http://127.0.0.1:9/", remote=RemoteRewardConfig(retries=0)))
    )
    with opened, pytest.raises(UserError, match=rf"^worker.reward.url=http://127(.|\n)*{named}"):
        opened.check([each.prompt for each in samples("a", "b")])


def test_several_processes_keep_one_rate(tmp_path):
    first, second = (Pace(str(tmp_path / "pace"), requests_per_second=10.0) for _ in range(2))
    waits = [pace.reserve(0, 60.0) for pace in (first, second, first)]
    assert waits[0] == 0.0
    assert 0.1 <= waits[2] <= 0.2
    tokens = Pace(str(tmp_path / "tokens"), tokens_per_second=100.0)
    assert tokens.reserve(500, 60.0) == 0.0
    assert 4.0 <= tokens.reserve(1, 60.0) <= 5.0
    with pytest.raises(TooSlowError):
        tokens.reserve(1, 0.5)


def test_requests_go_at_the_rate_of_the_config(server):
    start = time.monotonic()
    with scorer(server, reward_type="sequential", remote={"requests_per_second": 10.0}) as opened:
        opened.score(samples(*"abcd"))
    assert time.monotonic() - start >= 0.3
    assert len(server.asked) == 4
