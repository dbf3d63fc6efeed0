"""Rows with images: sampled by an engine, and evaluated."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from evals.conftest import read_lines

from whet.assets import builtin
from whet.cli import examples_folder
from whet.config import load_config
from whet.data.files import read_rows
from whet.tracking.run_folder import answer_text

CONFIG = f"config={examples_folder() / 'vision' / 'count_grpo.yaml'}"


@pytest.fixture(scope="module")
def model(whet_home: Path) -> str:
    """The built-in model that sees."""
    builtin("whet/shapes", print)
    return f"worker.actor.model.model_path={builtin('whet/vision', print) / 'model'}"


def test_generate_and_eval_see_images(whet: Callable[..., str], model: str) -> None:
    small = (CONFIG, model, "trainer.device=cpu", "worker.rollout.max_num_seqs=8")
    whet("eval", *small, "eval.limit=6", "eval.n=2", "eval.output=out")
    report = json.loads(Path("out/report.json").read_text())["datasets"]["val"]
    assert (report["questions"], report["samples"]) == (6, 12)
    config = load_config([CONFIG])
    assert config.data.val_files.startswith("whet/shapes@")
    shapes = builtin("whet/shapes", print) / f"{config.data.val_files.partition('@')[2]}.parquet"
    rows = read_rows(str(shapes))[:6]
    pq.write_table(pa.Table.from_pylist(rows), "six.parquet")
    whet("generate", *small, "generate.files=six.parquet", "generate.output=six.jsonl", "worker.rollout.n=2")
    found = read_lines("six.jsonl")
    assert len(found) == 12
    assert config.data.image_key not in found[0]  # pictures are not copied into the output
    assert answer_text(rows[0][config.data.answer_key]) == answer_text(found[0][config.data.answer_key])
