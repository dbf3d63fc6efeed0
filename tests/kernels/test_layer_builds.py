"""The kernels of a decoder layer built for Hopper, in a process without the interpreter; it needs no GPU."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

BUILD = r"""
import re, subprocess, tempfile, triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from whet.kernels import glu, norm, rotary, rotary_backward

ptxas = get_ptxas(90).path
FP32 = {"rstd_N", "partial_PH", "partial_PB2D"}
SCALARS = {"eps": "fp32", "slots_N": "*i64"} | dict.fromkeys(
    ("N", "P", "C", "stride", "source_stride", "target_stride", "width"), "i32"
)

def build(kernel, warps, **constants):
    signature = {
        name: "constexpr" if name in constants else SCALARS.get(name, "*fp32" if name in FP32 else "*bf16")
        for name in kernel.arg_names
    }
    aligned = {
        (i,): [["tt.divisibility", 16]]
        for i, (name, kind) in enumerate(signature.items())
        if kind[0] == "*" or kind == "i32" and name not in ("N", "P")
    }
    source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as ptx:
        ptx.write(built.asm["ptx"])
        ptx.flush()
        command = [ptxas, "-v", "-arch=sm_90a", ptx.name, "-o", "/dev/null"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert set(re.findall(r"(\d+) bytes spill", said)) == {"0"}, (kernel, constants, said)
    assert built.metadata.shared <= 227 * 1024
    return built.asm["ptx"]

for H in (576, 2048, 8192):
    block, warps = norm._block(H)
    same = dict(H=H, OFFSET=0.0, BLOCK=block)
    for ptx in (
        build(norm._add_rms_norm, warps, ADD=True, **same),
        build(norm._normalise, warps, **same),
        build(norm._add_rms_norm_backward, warps, ADD=True, **same),
    ):
        assert "st.global.v4" in ptx
for heads, kv, D in ((9, 3, 64), (16, 8, 128), (64, 8, 128), (8, 4, 256)):
    for normed in (False, True):
        same = dict(HEADS=heads, D=D, OFFSET=0.0)
        block, warps = rotary.heads_block(heads + kv, D)
        turned = dict(TURNED=heads + kv, BLOCK=block, **same)
        build(rotary._rotate, warps, NORM=normed, INVERSE=False, **turned)
        if normed:
            build(rotary_backward._rotate_norm_backward, warps, **turned)
        block, warps = rotary.heads_block(heads + 2 * kv, D)
        assert "st.global.v4" in build(rotary._rotate_to_pages, warps, KV=kv, NORM=normed, BLOCK=block, **same)
for silu in (True, False):
    for kernel in (glu._glu, glu._glu_backward):
        assert "st.global.v4" in build(kernel, glu._WARPS, SILU=silu, BLOCK=glu._BLOCK)
"""


@pytest.mark.slow
def test_builds_for_hopper_without_spills_and_with_wide_stores() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", BUILD], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
