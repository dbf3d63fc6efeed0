"""Where the kernels may be used."""

from __future__ import annotations

from whet.kernels import available


def test_available_on_cuda_alone() -> None:
    assert available("cuda")
    assert not available("cpu"), "triton's interpreter is for tests"
