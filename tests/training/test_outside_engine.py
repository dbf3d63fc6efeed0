"""An engine from outside the package, the one of docs/extending.md, trains and resumes as whet's own do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from whet_process import run_folder, train

from whet.tracking import read_metrics

GUIDE = Path(__file__).parents[2] / "docs" / "extending.md"
SMALL = ("trainer.val_freq=-1", "trainer.val_before_train=false", "trainer.max_steps=2", "data.max_response_length=6")


@pytest.fixture
def slow(tmp_path: Path) -> str:
    """The file of the guide, as a config names its engine."""
    (code,) = re.findall(r'```python\n("""slow\.py.*?)```', GUIDE.read_text(), re.DOTALL)
    (tmp_path / "slow.py").write_text(code)
    return f"worker.rollout.name={tmp_path / 'slow.py'}:SPEC"


def test_the_engine_of_the_guide_trains_two_steps(tmp_path: Path, few_rows: tuple[str, str], slow: str) -> None:
    code, text = train(tmp_path, *few_rows, *SMALL, slow)
    assert code == 0, text
    lines = read_metrics(run_folder(tmp_path) / "metrics.jsonl")
    assert [line["train/step"] for line in lines if "train/step" in line] == [1, 2]
    assert all(line["rollout/log_prob_diff_max"] < 1e-4 for line in lines if "rollout/log_prob_diff_max" in line)
    native, text = train(tmp_path / "native", *few_rows, *SMALL)
    assert native == 0, text
    # The same random numbers and the same weights write the same samples.
    ours = read_metrics(run_folder(tmp_path / "native") / "metrics.jsonl")
    assert lines[0]["response_length/mean"] == ours[0]["response_length/mean"]
