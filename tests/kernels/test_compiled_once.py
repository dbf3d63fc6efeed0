"""Kernels whose arguments change from batch to batch are compiled once; read in a process without the interpreter."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

READ = r"""
import importlib, inspect, pkgutil
from triton.runtime.jit import JITFunction
from whet import kernels

CHANGING = {"N", "P", "M", "key_programs"}  # tokens of a batch, and what follows from their number
FIXED = {("linear_kernel", "N"), ("_rotate_to_pages", "P")}  # sizes of a weight, and of a page
CUT = {"targets"}  # slices, which begin anywhere
found = 0
for each in pkgutil.iter_modules(kernels.__path__):
    module = importlib.import_module(f"whet.kernels.{each.name}")
    source = inspect.getsource(module)
    for name, kernel in vars(module).items():
        if not isinstance(kernel, JITFunction) or f"{name}[" not in source:  # the others are called by kernels
            continue
        for parameter in kernel.params:
            what = f"{each.name}.{name} is compiled again for another {parameter.name}"
            if parameter.name in CHANGING and (name, parameter.name) not in FIXED:
                assert parameter.do_not_specialize, what
                found += 1
            if parameter.name in CUT:
                assert parameter.do_not_specialize_on_alignment, what
                found += 1
assert found >= 10, found
"""


def test_no_size_of_a_batch_is_compiled_in() -> None:
    pytest.importorskip("triton")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", READ], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
