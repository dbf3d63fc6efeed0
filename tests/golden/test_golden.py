"""Every kind of training computes the bits that were recorded on this CPU before a change (`make golden`)."""

from __future__ import annotations

import json

import pytest
from golden.runs import ROOT, RUNS, recording, run


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_same_bits_as_recorded(name, tmp_path):
    if not recording().exists():
        pytest.skip("nothing is recorded for this CPU: make golden, on the revision to compare with")
    recorded = json.loads(recording().read_text())["runs"].get(name)
    if recorded is None:
        pytest.skip(f"{name} was not recorded: make golden")
    found = run(name, ROOT, tmp_path / name)
    assert len(found["metrics"]) == len(recorded["metrics"])
    for now, then in zip(found["metrics"], recorded["metrics"]):
        assert {metric: now.get(metric) for metric in then} == then, f"step {then['step']}"
    assert found["weights"] == recorded["weights"]
