"""Pictures of samples: those of the token record, and no other file of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from board.conftest import TOKEN, sample
from PIL import Image
from starlette.testclient import TestClient

from whet.board.app import make_app
from whet.board.runs import Runs, run_id
from whet.tracking.token_records import TokenFiles, TokenRecord
from whet.types import Media


def client(run: Path) -> TestClient:
    return TestClient(make_app(Runs([run.parent]), TOKEN), base_url="http://127.0.0.1")


def test_pictures_of_a_sample_are_named_and_sent(run: Path) -> None:
    seen = sample(0, "markup")
    seen.prompt.media = Media(images=[Image.new("RGB", (8, 8), "red")])
    seen.segments[1].media = Media(images=[Image.new("RGB", (8, 8), "blue")])
    record = TokenRecord(0, seen, [0.0] * 6, [0.0] * 6, None, None)
    TokenFiles(run / "tokens", 10**6, run / "pictures").write(1, [record])
    board, base = client(run), f"/{TOKEN}/api/runs/{run_id(run)}"
    found = board.get(f"{base}/sample?step=1&row=0").json()["pictures"]
    assert [each["at"] for each in found] == [-1, 3]
    answer = board.get(f"{base}/pictures/{found[0]['file']}")
    assert answer.headers["content-type"] == "image/png"
    assert answer.content == (run / "pictures" / found[0]["file"]).read_bytes()
    (run / "pictures" / found[0]["file"]).unlink()
    assert board.get(f"{base}/pictures/{found[0]['file']}").status_code == 404
    assert len(board.get(f"{base}/sample?step=1&row=0").json()["pictures"]) == 1
    assert board.get(f"{base}/sample?step=1&row=1").json()["pictures"] == []


@pytest.mark.parametrize(
    "name", ["..", "%2e%2e%2fconfig.yaml", "config.yaml", "a" * 32 + ".svg", "A" * 32 + ".png", "-"]
)
def test_only_names_that_whet_gives_are_opened(run: Path, name: str) -> None:
    (run / "pictures").mkdir()
    (run / "pictures" / ("A" * 32 + ".png")).write_bytes(b"x")
    answer = client(run).get(f"/{TOKEN}/api/runs/{run_id(run)}/pictures/{name}")
    assert answer.status_code == 404
