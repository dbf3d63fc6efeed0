"""docs/scaling.md: its commands load, its table is the arithmetic it says, its program runs."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from distributed.processes import nothing_left

from whet.config import load_config
from whet.learn.memory import model_bytes

GUIDE = (Path(__file__).parents[2] / "docs" / "scaling.md").read_text()
ROOM = 48e9


def devices(parameters: float, trained_bytes: float) -> str:
    """The least power of two that holds a model, whole on each of several for sampling."""
    if trained_bytes <= ROOM:
        return "1"
    fitting = (n for n in (2, 4, 8, 16, 32) if trained_bytes / n + 2 * parameters <= ROOM)
    return str(next(fitting, "–"))


def test_the_table_is_the_arithmetic_that_the_text_gives():
    rows = re.findall(r"^\| ([\d.]+) B \| (\S+) \| (\S+) \|$", GUIDE, re.MULTILINE)
    assert len(rows) == 6
    for size, full, lora in rows:
        parameters = int(float(size) * 1e9)
        assert devices(parameters, model_bytes(parameters, torch.bfloat16, trained=True)) == full, size
        assert devices(parameters, model_bytes(parameters, torch.bfloat16, trained=False)) == lora, size


def test_its_keys_exist():
    commands = re.findall(r"^    whet train config=run\.yaml *(.*?) *#", GUIDE, re.MULTILINE)
    assert len(commands) == 5
    for command in commands:
        load_config(shlex.split(command))
    default = load_config([]).trainer.worker_timeout
    assert f"`trainer.worker_timeout` ({default} s)" in GUIDE


@pytest.mark.slow
def test_its_program_runs(tmp_path: Path, own_ray: None):
    program = re.search(r"```python\n(.*?)```", GUIDE, re.DOTALL).group(1)
    shown = re.sub(
        r"^(group\.(?:call|scatter)\(.*?\))  # (\[.*?\]):.*$", r"assert \1 == \2", program, flags=re.MULTILINE
    )
    assert shown.count("assert") == 2
    script = tmp_path / "program.py"
    script.write_text(shown)
    with nothing_left():
        run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
