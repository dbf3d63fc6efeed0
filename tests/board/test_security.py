"""Requests that the board must not answer, and that it stays up after them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from board.conftest import TOKEN
from starlette.testclient import TestClient

from whet.board.app import make_app
from whet.board.runs import Runs, run_id


@pytest.fixture
def client(run: Path) -> TestClient:
    return TestClient(
        make_app(Runs([run.parent]), TOKEN), base_url="http://127.0.0.1:8766", raise_server_exceptions=False
    )


@pytest.mark.parametrize("path", ["/", "/api/runs", "/wrong/api/runs", f"/{TOKEN}x/api/runs", f"/{TOKEN}", "//", "/é/"])
def test_without_the_token_there_is_nothing(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert "token" in answer.json()["error"]


@pytest.mark.parametrize("host", ["evil.com", "evil.com:8766", "127.0.0.1.evil.com", "192.168.0.7", ""])
def test_other_names_are_refused(client: TestClient, host: str) -> None:
    assert client.get(f"/{TOKEN}/api/runs", headers={"host": host}).status_code == 403


def test_pages_of_others_and_writing_methods_are_refused(client: TestClient) -> None:
    assert client.get(f"/{TOKEN}/api/runs", headers={"origin": "https://evil.com"}).status_code == 403
    assert client.get(f"/{TOKEN}/api/runs", headers={"host": "localhost:8766"}).status_code == 200
    for method in ("PUT", "DELETE", "OPTIONS"):
        assert client.request(method, f"/{TOKEN}/api/runs").status_code == 405
    assert client.post(f"/{TOKEN}/api/runs").status_code == 403  # tests/board/test_actions.py has what may be sent
    assert client.post(f"/{TOKEN}/api/runs", json={}).status_code == 405


@pytest.mark.parametrize(
    "path",
    ["../access.py", "..%2faccess.py", "%2e%2e/access.py", "..%5caccess.py", "/etc/passwd", "main.js%00.css", "x.js",
     "api/runs/../../access.py", "api/runs/..%2f..%2fetc/config", "api/nothing", "index.html/x", "__init__.py"],
)  # fmt: skip
def test_paths_lead_nowhere(client: TestClient, path: str) -> None:
    answer = client.get(f"/{TOKEN}/{path}")
    assert answer.status_code in (400, 404)
    assert set(answer.json()) == {"error"}


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("samples", {"split": "../val"}),
        ("samples", {"step": "-1"}),
        ("samples", {"step": "1; DROP TABLE"}),
        ("samples", {"offset": "9" * 30}),
        ("samples", {"min_reward": "nan"}),
        ("samples", {"max_reward": "x"}),
        ("samples", {"order": "step; --"}),
        ("samples", {"text": "x" * 3000}),
        ("groups", {}),
        ("groups", {"step": "77"}),
        ("sample", {"step": "1", "row": "500"}),
        ("sample", {"step": "2", "row": "0"}),
        ("config", {"other": "../.."}),
    ],
)
def test_wrong_parameters_get_a_sentence(client: TestClient, run: Path, path: str, query: dict[str, str]) -> None:
    answer = client.get(f"/{TOKEN}/api/runs/{run_id(run)}/{path}", params=query)
    assert answer.status_code == 400
    assert answer.json()["error"]
    assert client.get(f"/{TOKEN}/api/runs").status_code == 200


def test_every_answer_keeps_the_page_to_itself(client: TestClient) -> None:
    for path in (f"/{TOKEN}/", f"/{TOKEN}/main.js", f"/{TOKEN}/plotly.min.js", f"/{TOKEN}/api/runs", "/"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self'; style-src")
        assert "script-src" not in headers["content-security-policy"]
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-content-type-options"] == "nosniff"


def test_a_failure_is_an_answer(client: TestClient, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("of a kind that nobody thought of")

    broken: Callable[..., None] = fail
    monkeypatch.setattr("whet.board.samples.Samples.steps", broken)
    answer = client.get(f"/{TOKEN}/api/runs/{run_id(run)}/steps")
    assert answer.status_code == 500
    assert "nobody thought of" in answer.json()["error"]
    assert client.get(f"/{TOKEN}/api/runs").status_code == 200


BOMB = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 8)}]\n" for before, name in zip("abcdefghi", "bcdefghij")
)


@pytest.mark.parametrize("content", [BOMB, "{" * 5000, "a: !!python/object/apply:os.getcwd []", "x" * 3_000_000, "\0"])
def test_a_config_that_is_no_config_gets_a_sentence(client: TestClient, run: Path, content: str) -> None:
    (run / "config.yaml").write_text(content)
    assert client.get(f"/{TOKEN}/api/runs").json()[0]["settings"] == {}
    answer = client.get(f"/{TOKEN}/api/runs/{run_id(run)}/config")
    assert answer.status_code == 400
    assert "config.yaml" in answer.json()["error"]


def test_lines_that_are_deep_or_huge_are_passed_over(client: TestClient, run: Path) -> None:
    deep = "[" * 100_000 + "\n"
    for name in ("metrics.jsonl", "timeline.jsonl", "doctor.jsonl"):
        with (run / name).open("a") as file:
            file.write(
                deep + '{"step": 14, "stages": [[1]], "groups": 3}\n{"step": 15, "' + "x" * 2_000_000 + '": 1}\n{"st'
            )
    base = f"/{TOKEN}/api/runs"
    for path in (
        "",
        f"/{run_id(run)}/metrics?name=reward/overall",
        f"/{run_id(run)}/findings",
        f"/{run_id(run)}/step?step=14",
    ):
        assert client.get(base + path).status_code == 200, path
    assert client.get(base).json()[0]["step"] == 15


def test_a_run_that_vanishes_while_it_is_open(client: TestClient, run: Path) -> None:
    assert client.get(f"/{TOKEN}/api/runs").status_code == 200
    shutil.rmtree(run)
    for view in (
        "metrics?name=x",
        "findings",
        "steps",
        "samples",
        "groups?step=1",
        "sample?step=1&row=0",
        "step",
        "config",
    ):
        assert client.get(f"/{TOKEN}/api/runs/{run_id(run)}/{view}").status_code in (200, 400), view
    assert client.get(f"/{TOKEN}/api/runs").json() == []
