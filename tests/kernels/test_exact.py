"""Rows of exact products and sums have the same bits in any batch."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from kernels.conftest import DEVICE
from torch import Tensor

from whet.kernels.exact import linear, row_sum, tile_of

# The interpreter multiplies bfloat16 as the integers that hold it, so float16 stands in for it there.
HALF = torch.bfloat16 if DEVICE == "cuda" else torch.float16
DTYPES = [torch.float32, HALF]


def _random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(DEVICE, dtype)


def _same_bits(a: Tensor, b: Tensor) -> bool:
    return bool((a.view(torch.uint8) == b.view(torch.uint8)).all())


def _factors(m: int, n: int, k: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """x_MK and w_NK to multiply: random on a GPU.

    In the interpreter the product of two tiles is a BLAS library's, of an order that no kernel decides. There the
    numbers are small integers, so that such a product is exact in any order; each tile of k has a scale of its own, so
    that adding the tiles up rounds.
    """
    if DEVICE == "cuda":
        return _random(m, k, dtype=dtype), _random(n, k, dtype=dtype)
    g = torch.Generator().manual_seed(m + n + k)
    x_MK, w_NK = (torch.randint(-15, 16, (rows, k), generator=g).float() for rows in (m, n))
    exponents_K = -7 * (torch.arange(k) // tile_of(n, dtype).k % 3)  # 1, 2^-7, 2^-14 and again
    return x_MK.to(dtype), (w_NK * 2.0**exponents_K).to(dtype)


# One case for each tile; float32 has only one.
@pytest.mark.parametrize(
    ("n", "k", "dtype"), [(192, 576, torch.float32), (192, 576, HALF), (300, 100, HALF), (2100, 40, HALF)]
)
def test_a_row_of_a_product_has_the_same_bits_in_any_batch(n: int, k: int, dtype: torch.dtype) -> None:
    (x_MK, w_NK), b_N = _factors(140, n, k, dtype), _random(n, dtype=dtype)
    whole = linear(x_MK, w_NK, b_N)
    for rows in (slice(0, 1), slice(139, 140), slice(3, 10), slice(70, 134)):
        assert _same_bits(linear(x_MK[rows], w_NK, b_N), whole[rows])
    moved = torch.randperm(140, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    assert _same_bits(linear(x_MK[moved], w_NK, b_N), whole[moved])
    if dtype == torch.float32:  # these numbers show an order of the tiles of k: another one has other bits
        assert not _same_bits(linear(x_MK.flip(1), w_NK.flip(1), b_N), whole)
    x_MK, w_NK = _random(140, k, dtype=dtype), _random(n, k, dtype=dtype)
    wanted = x_MK.double() @ w_NK.double().T + b_N.double()
    rtol = 1e-5 if dtype == torch.float32 else 8e-3  # of half precision: one rounding
    # sums of size 24 cancel to about 0
    torch.testing.assert_close(linear(x_MK, w_NK, b_N), wanted.to(dtype), rtol=rtol, atol=1e-4)


def test_a_row_depends_on_no_other_row() -> None:
    x_MK, w_NK = _random(80, 96), _random(64, 96)
    before = linear(x_MK, w_NK)
    x_MK[1:] = float("nan")
    assert _same_bits(linear(x_MK, w_NK)[:1], before[:1])


def test_a_weight_may_lie_either_way_round() -> None:
    x_MK, w_KN = _random(5, 40), _random(40, 70)
    torch.testing.assert_close(linear(x_MK, w_KN.t()), (x_MK.double() @ w_KN.double()).float())


def test_inputs_may_be_strided_unaligned_or_empty() -> None:
    x, w_NK = _random(6, 81), _random(16, 40)
    torch.testing.assert_close(linear(x[:, 1:41], w_NK), (x[:, 1:41].double() @ w_NK.double().T).float())
    assert linear(x[:0, :40], w_NK).shape == (0, 16)


def test_what_a_product_refuses() -> None:
    with pytest.raises(TypeError, match="float64"):
        linear(_random(2, 16).double(), _random(4, 16).double())
    with pytest.raises(TypeError, match="bfloat16"):
        linear(_random(2, 16), _random(4, 16).bfloat16())
    with pytest.raises(ValueError, match=r"\(M, 16\)"):
        linear(_random(2, 16), _random(4, 8))


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64])
@pytest.mark.parametrize("k", [1, 64, 100, 576, 5000])
def test_sums_of_rows(k: int, dtype: torch.dtype) -> None:
    x_MK = _random(37, k, dtype=dtype)
    whole = row_sum(x_MK, mean=True)
    for rows in (slice(0, 1), slice(36, 37), slice(5, 25)):
        assert _same_bits(row_sum(x_MK[rows], mean=True), whole[rows])
    close = {"rtol": 8e-3, "atol": 1e-6} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(whole, x_MK.double().mean(1).to(dtype), **close)
    torch.testing.assert_close(row_sum(x_MK), x_MK.double().sum(1).to(dtype), **(close | {"atol": 1e-3}))


def test_tiles_do_not_know_the_number_of_rows() -> None:
    assert tile_of.__annotations__.keys() == {"n", "dtype", "return"}


COMPILE = """
import re, subprocess, tempfile, torch, triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from whet.kernels.exact import GROUP_M, linear_kernel, row_sum_kernel, tile_of

ptxas = get_ptxas(90).path

def check(kernel, types, constants, aligned, **options):
    signature = {**types, **dict.fromkeys(constants, "constexpr")}
    attrs = {(i,): [["tt.divisibility", 16]] for i in aligned}
    source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=attrs)
    built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as ptx:
        ptx.write(built.asm["ptx"])
        ptx.flush()
        command = [ptxas, "-v", "-arch=sm_90a", ptx.name, "-o", "/dev/null"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert built.metadata.shared <= 227 * 1024, built.metadata.shared
    assert set(re.findall(r"(\\d+) bytes spill", said)) == {"0"}, (constants, said)
    return built.asm["ptx"]

for n in (192, 576, 1536, 6144, 151936):
    for stride in ("stride_wn", "stride_wk"):
        for even in (True, False):
            tile = tile_of(n, torch.bfloat16)
            types = dict.fromkeys(("x_ptr", "w_ptr", "b_ptr", "y_ptr"), "*bf16") | dict.fromkeys("MNK", "i32")
            other = {"stride_wn": "stride_wk", "stride_wk": "stride_wn"}[stride]
            constants = dict(
                HAS_BIAS=True, EVEN_K=even, PRECISION="ieee", GROUP=GROUP_M, BLOCK_M=tile.m, BLOCK_N=tile.n,
                BLOCK_K=tile.k,
            )
            aligned = (0, 1, 2, 3, 5, 6, 7 if stride == "stride_wn" else 8)
            ptx = check(linear_kernel, {**types, stride: "i32"}, {**constants, other: 1}, aligned,
                        num_warps=tile.warps, num_stages=tile.stages)
            assert "wgmma" in ptx and "cp.async" in ptx
for k in (64, 128, 1024, 2048):
    types = {"x_ptr": "*fp32", "y_ptr": "*fp32", "M": "i32", "K": "i32"}
    check(row_sum_kernel, types, dict(MEAN=True, WIDE=False, BLOCK_M=2048 // k, BLOCK_K=k), (0, 1, 3), num_warps=4)
"""


@pytest.mark.slow
def test_the_kernels_compile_for_an_h200_without_spills(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    done = subprocess.run([sys.executable, "-"], input=COMPILE, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
