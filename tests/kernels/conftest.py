"""Kernels run compiled where there is a CUDA device, else on CPU tensors in triton's interpreter."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import DEVICE as DEVICE  # tests of other packages import it from here too


class _WithoutTriton(pytest.Module):
    """A test file that is not imported, since it could not be."""

    def collect(self) -> list[pytest.Item]:
        pytest.skip("triton is not installed", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Skip every file of this folder, with the reason, where triton is missing."""
    if find_spec("triton") is None:
        return _WithoutTriton.from_parent(parent, path=module_path)
    return None
