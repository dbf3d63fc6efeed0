"""Where the kernels may be used."""

from __future__ import annotations

import pytest
from kernels.conftest import DEVICE

from whet.kernels import available


def test_available_where_the_tests_run() -> None:
    assert available(DEVICE)


def test_not_available_on_a_cpu_without_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert not available("cpu")
    assert available("cuda")
