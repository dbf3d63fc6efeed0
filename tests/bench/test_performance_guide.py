"""The commands in docs/performance.md are understood, and its floors are those of the benchmark."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "performance.md"
COMMANDS = re.findall(r"^python bench/gpu\.py (.*)$", GUIDE.read_text(), re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_name_options_parts_and_keys_that_exist(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import gpu

    from whet.config import load_config

    monkeypatch.setattr(sys, "argv", ["gpu.py", *shlex.split(command)])
    arguments = gpu._arguments()
    assert gpu._chosen(arguments)
    load_config([f"config={ROOT / 'examples' / 'quickstart.yaml'}", *arguments.set])


def test_the_peaks_are_those_of_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    from gpu_shapes import PEAK_BYTES, PEAK_FLOPS

    text = GUIDE.read_text()
    assert f"{PEAK_FLOPS / 1e12:.0f} TFLOP/s" in text
    assert f"{PEAK_BYTES / 1e12} TB/s" in text
