"""A Ray of the test's own, whatever runs on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from distributed.processes import nothing_left


@pytest.fixture
def own_ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start a cluster of our own where one is wanted, and find nothing of it afterwards."""
    if find_spec("ray") is None:  # not imported here: whet sets variables before it imports Ray
        pytest.skip("Ray is not installed: pip install 'whet[ray]'")
    monkeypatch.setenv("RAY_ADDRESS", "local")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with nothing_left():
        yield
