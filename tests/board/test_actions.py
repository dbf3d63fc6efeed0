"""Requests that start something: who may send them, and what they are checked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from board.conftest import TOKEN
from starlette.testclient import TestClient

from whet.board.app import make_app
from whet.board.jobs import Jobs
from whet.board.runs import Runs, run_id
from whet.tracking.requests import ask, take

READ = "fedcba98765432100000"


def client(run: Path, **options: Any) -> TestClient:
    app = make_app(Runs([run.parent]), TOKEN, read_token=READ, jobs=Jobs(("false",)), **options)
    return TestClient(app, base_url="http://127.0.0.1")


def post(client: TestClient, run: Path, path: str, body: Any, token: str = TOKEN, **headers: str) -> Any:
    return client.post(f"/{token}/api/runs/{run_id(run)}/{path}", json=body, headers=headers)


def test_the_link_for_reading_reads_and_starts_nothing(run: Path) -> None:
    board = client(run, control=True)
    assert board.get(f"/{READ}/api/runs").status_code == 200
    assert board.get(f"/{READ}/api/about").json() == {"resample": False, "control": False}
    assert board.get(f"/{TOKEN}/api/about").json() == {"resample": True, "control": True}
    answer = post(board, run, "resample", {"kind": "again", "step": 1, "row": 0}, READ)
    assert answer.status_code == 405
    assert "for reading" in answer.json()["error"]
    assert post(board, run, "control", {"action": "stop"}, READ).status_code == 405
    assert not (run / "requests").exists()


def test_requests_come_from_the_boards_own_page(run: Path) -> None:
    board = client(run)
    good = {"kind": "again", "step": 1, "row": 0}
    assert post(board, run, "resample", good, origin="http://evil.example").status_code == 403
    assert post(board, run, "resample", good, origin="http://127.0.0.1").status_code == 200
    plain = board.post(
        f"/{TOKEN}/api/runs/{run_id(run)}/resample", content="{}", headers={"content-type": "text/plain"}
    )
    assert plain.status_code == 403
    assert board.put(f"/{TOKEN}/api/runs").status_code == 405
    assert board.post(f"/wrong/api/runs/{run_id(run)}/resample", json=good).status_code == 404


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ({"kind": "again"}, "step must be given"),
        ({"kind": "again", "step": 1, "row": 0, "command": "rm"}, "there is no 'command'"),
        ([1], "a request is an object"),
    ],
)
def test_what_is_wrong_with_a_request_is_said(run: Path, body: Any, part: str) -> None:
    answer = post(client(run), run, "resample", body)
    assert answer.status_code == 400
    assert part in answer.json()["error"]


def test_bodies_that_are_too_long_or_no_json(run: Path) -> None:
    board, path = client(run), f"/{TOKEN}/api/runs/{run_id(run)}/resample"
    headers = {"content-type": "application/json"}
    assert "must be JSON" in board.post(path, content="{", headers=headers).json()["error"]
    assert "at most" in board.post(path, content=" " * 5_000_000, headers=headers).json()["error"]


def test_control_needs_its_flag_and_a_run_that_goes_on(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--control" in post(client(run), run, "control", {"action": "stop"}).json()["error"]
    board = client(run, control=True)
    assert "not going on" in post(board, run, "control", {"action": "stop"}).json()["error"]
    monkeypatch.setattr("whet.board.control.read_status", lambda folder: "running")
    assert "action must be one of" in post(board, run, "control", {"action": "rm -rf"}).json()["error"]
    for body in ([], [1], {}, "stop", {"action": ["stop"]}):
        assert "action must be one of" in post(board, run, "control", body).json()["error"]
    assert post(board, run, "control", {"action": "save"}).json() == {"asked": "save"}
    assert post(board, run, "control", {"action": "save"}).status_code == 200
    assert take(run) == ["save"]
    assert take(run) == []


def test_only_known_requests_are_taken(tmp_path: Path) -> None:
    assert take(tmp_path) == []
    with pytest.raises(ValueError, match="can be asked to"):
        ask(tmp_path, "dance")
    ask(tmp_path, "validate")
    ask(tmp_path, "stop")
    (tmp_path / "requests" / "dance").touch()
    assert take(tmp_path) == ["stop", "validate"]


def test_a_board_from_python(run: Path) -> None:
    import urllib.request

    import whet

    with whet.Run(run).board() as board:
        assert board.url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(board.url + "api/runs") as answer:
            assert answer.status == 200
        assert board.url in board._repr_html_()
    with pytest.raises(whet.UserError, match="a port is a number"):
        whet.Run(run).board(port=70_000)
