"""Kernels run compiled where there is a CUDA device, else on CPU tensors in triton's interpreter."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # before the first kernel is defined: triton reads it there


class _WithoutTriton(pytest.Module):
    """A test file that is not imported, since it could not be."""

    def collect(self) -> list[pytest.Item]:
        pytest.skip("triton is not installed", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Skip every file of this folder, with the reason, where triton is missing."""
    if find_spec("triton") is None:
        return _WithoutTriton.from_parent(parent, path=module_path)
    return None


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where the tests of this folder put their tensors; `from kernels.conftest import DEVICE` is the same."""
    return torch.device(DEVICE)
