"""A Ray of the test's own, whatever runs on this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from distributed.processes import nothing_left


@pytest.fixture
def own_ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start a cluster of our own where one is wanted, and find nothing of it afterwards."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'whet[ray]'")
    monkeypatch.setenv("RAY_ADDRESS", "local")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with nothing_left():
        yield
