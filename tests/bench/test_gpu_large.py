"""The benchmark of large models runs on a CPU with tiny ones: full training, adapters, FP8, a mixture of experts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))


def test_steps_of_tiny_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gpu_large

    out = tmp_path / "result.json"
    names = ["tiny", "tiny-lora", "tiny-kl", "tiny-fp8", "tiny-moe"]
    monkeypatch.setattr(sys, "argv", ["gpu_large.py", *names, "--rounds", "1", "--out", str(out)])
    gpu_large.main()
    results = json.loads(out.read_text())
    assert [result["workload"] for result in results] == names
    for result in results:
        (step,) = result["rounds"]
        assert step["tokens"] > 0
        assert step["packed_tokens"] > step["tokens"]
        difference = step["metrics"]["rollout/log_prob_diff_max"]
        assert 1e-5 < difference < 0.5 if result["workload"] == "tiny-fp8" else difference < 1e-3
        assert step["metrics"]["actor/grad_norm"] > 0
