"""Captured commands run for two steps through `whet as`, unchanged but for paths and sizes."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import shrink

from whet.cli import main

ROOT = Path(__file__).parents[2]
QUICK = ("verl-run_qwen2-7b", "or1-run_gemma_7b", "easyr1-qwen2_5_7b_math_grpo", "verl-run_deepseek_v2_lite_math")


def _module(command: dict[str, Any]) -> str:
    return command["module"].split()[-1]


def _check_result(command: dict[str, Any], folder: Path) -> None:
    if "main_generation" in command["module"]:
        table = pq.read_table(folder / "out.parquet")
        assert table.num_rows == 12
        assert [len(each) for each in table.column("responses").to_pylist()] == [2] * 12
        assert "reward_model" in table.column_names
    else:
        assert (folder / "run" / "global_step_2" / "manifest.json").is_file()


@pytest.mark.parametrize("command", [c for c in shrink.CAPTURED if shrink.label(c) in QUICK], ids=shrink.label)
def test_a_command_runs(
    command: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quickstart: Path
) -> None:
    monkeypatch.chdir(ROOT)
    shrink.write_data(tmp_path)
    assert main(["as", "--entry", command["system"], _module(command), "--", *shrink.small(command, tmp_path)]) == 0
    _check_result(command, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("command", shrink.CAPTURED, ids=shrink.label)
def test_a_script_with_the_command_runs(command: dict[str, Any], tmp_path: Path, whet_home: Path) -> None:
    shrink.write_data(tmp_path)
    launcher = "torchrun --standalone --nproc_per_node=1 -m" if "torchrun" in command["module"] else "python3 -m"
    script = tmp_path / "run.sh"
    script.write_text(f'set -x\n{launcher} {_module(command)} {shlex.join(shrink.small(command, tmp_path))} "$@"\n')
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    call = [sys.executable, "-m", "whet", "as", command["system"], "--", "bash", str(script)]
    out = subprocess.run(call, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert out.returncode == 0, out.stdout[-2000:] + out.stderr[-3000:]
    _check_result(command, tmp_path)
