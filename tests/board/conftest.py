"""Run folders of the tests of the board: written as a run writes them, with texts that a page must not believe."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whet.tracking.run_folder import append_metrics, write_samples
from whet.types import Prompt, Sample, Segment

HOSTILE = {
    "markup": "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>",
    "ansi": "\x1b[31mred\x1b[0m \x00 nul",
    "bidi": "\u202egnp.exe\u202c\u200b",
    "long": "x" * 1_000_000,
    "plain": "Answer: 42",
}
TOKEN = "0123456789abcdef0123"


def sample(i: int, text: str, uid: str = "train.jsonl:1") -> Sample:
    """A response with a tool's turn in the middle, reward i and advantage i - 2."""
    segments = [
        Segment([1, 2, 3], True, [-0.1, -2.0, -5.0]),
        Segment([4, 5], False),
        Segment([6], True, [-1.0]),
    ]
    scores = {"overall": float(i), "format": 1.0}
    notes = {"judge": "<b>good</b>"} if i == 0 else {}
    prompt = Prompt(uid, [1], f"Prompt <i>{i % 2}</i> of {uid} \x07", "7")
    return Sample(prompt, segments, "stop", i, 0, text, scores, advantage=float(i) - 2, notes=notes)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of 14 steps whose gradients explode, with hostile samples at steps 1 and 3 and a damaged file at step 2."""
    folder = tmp_path / "runs" / "hostile"
    folder.mkdir(parents=True)
    for step in range(1, 15):
        values = {
            "reward/overall": step / 20,
            "actor/grad_norm": 0.5 if step < 9 else 80.0,
            "<b>odd</b>": float("nan"),
            "timing_s/step": 2.0,
            "perf/total_tokens": 100,
        }
        append_metrics(folder / "metrics.jsonl", step, values)
    texts = list(HOSTILE.values())
    write_samples(folder / "samples" / "train_000001.parquet", 1, [sample(i, t) for i, t in enumerate(texts)], True)
    others = [sample(i, f"Answer: {i}", f"train.jsonl:{i}") for i in range(40)]
    write_samples(folder / "samples" / "train_000003.parquet", 3, others, False)
    (folder / "samples" / "train_000002.parquet").write_bytes(b"PAR1 damaged")
    (folder / "config.yaml").write_text(
        "data: {max_response_length: 77}\nworker: {rollout: {n: 3}, api_key: sk-verysecretvalue123456}\nold: {key: 1}\n"
    )
    (folder / "run.log").write_text("step 14\nfinished after 14 of 14 steps in 28.0s\n")
    return folder


@pytest.fixture
def ask(run: Path) -> Callable[..., Any]:
    """ask("runs"), ask("samples", step=1): the board's answer about the run, as JSON, which must be a success."""
    from starlette.testclient import TestClient

    from whet.board.app import make_app
    from whet.board.runs import Runs, run_id

    client = TestClient(make_app(Runs([run.parent]), TOKEN), base_url="http://127.0.0.1")

    def get(path: str, status: int = 200, run_name: str | None = None, **query: Any) -> Any:
        place = "runs" if path == "runs" else f"runs/{run_name or run_id(run)}/{path}"
        answer = client.get(f"/{TOKEN}/api/{place}", params=query)
        assert answer.status_code == status, answer.text
        return answer.json()

    return get
