"""64 clients that stream at once: nothing is lost, nothing fails, memory does not grow."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "bench" / "serve.py"


@pytest.mark.slow
def test_64_streaming_clients(folder, monkeypatch):
    spec = importlib.util.spec_from_file_location("bench_serve", SCRIPT)
    bench = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "bench_serve", bench)  # dataclasses look for the module they are in
    spec.loader.exec_module(bench)
    args = argparse.Namespace(clients=64, seconds=12.0, tokens=48, checked=200)
    with bench.server(str(folder)) as (address, name, process):
        seen = asyncio.run(bench.load(address, name, process, args))
    assert seen.errors == []
    assert len(seen.texts) >= 64
    assert seen.vanished > 0
    half = len(seen.memory) // 2
    assert max(seen.memory[half:]) < max(seen.memory[:half]) + 64e6
