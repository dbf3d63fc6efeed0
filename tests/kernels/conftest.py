"""Kernels run compiled where there is a CUDA device, else on CPU tensors in triton's interpreter.

Tests of other rooms that launch kernels import `DEVICE` from here too: `from kernels.conftest import DEVICE`.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def _interpret() -> None:
    """Choose triton's interpreter, before the first kernel is defined; let it count loops with numpy 2.4 and later."""
    os.environ["TRITON_INTERPRET"] = "1"
    if find_spec("triton") is None:
        return
    from triton.runtime import interpreter

    # triton 3.6 keeps scalars as arrays of one element, which numpy 2.4 no longer turns into an int (triton #9171).
    patch_tensor = interpreter._patch_lang_tensor

    def patch_tensor_and_index(tensor: type, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda scalar: int(scalar.handle.data.item()))

    interpreter._patch_lang_tensor = patch_tensor_and_index


if DEVICE == "cpu":
    _interpret()


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
    """Where the tests of this folder put their tensors."""
    return torch.device(DEVICE)
