"""The product of few rows in 8 bits, against torch's and against float64."""

from __future__ import annotations

import pytest
import torch
from kernels.conftest import DEVICE
from torch import Tensor

from whet.kernels.fp8_product import few_rows_product, suits

SHAPES = [(1, 16, 16), (7, 80, 272), (16, 64, 512), (33, 208, 304), (128, 96, 1040)]


def _factors(R: int, OUT: int, IN: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(R)
    x, weight = torch.randn(R, IN, generator=generator), torch.randn(OUT, IN, generator=generator)
    scales = (torch.rand(rows, 1, generator=generator) + 0.1 for rows in (R, OUT))
    x_scale, weight_scale = (scale.to(DEVICE) for scale in scales)
    return x.to(DEVICE, dtype), x_scale, weight.to(DEVICE, dtype), weight_scale


@pytest.mark.parametrize(("R", "OUT", "IN"), SHAPES)
def test_against_float64(R: int, OUT: int, IN: int) -> None:
    # Triton's interpreter has 8-bit floats of its own kind; the kernel takes 16 bits as well.
    x, x_scale, weight, weight_scale = _factors(R, OUT, IN, torch.float8_e4m3fn if DEVICE == "cuda" else torch.float16)
    out = few_rows_product(x, x_scale, weight, weight_scale)
    expected = (x.double() * x_scale) @ (weight.double() * weight_scale).t()
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.double(), expected, rtol=1e-2, atol=1e-2 * float(expected.abs().max()))


@pytest.mark.skipif(DEVICE == "cpu", reason="torch has no products of scaled rows on a CPU")
@pytest.mark.parametrize(("R", "OUT", "IN"), [*SHAPES, (32, 4608, 3584), (64, 3584, 3584), (8, 1024, 18944)])
def test_bits_are_those_of_torch(R: int, OUT: int, IN: int) -> None:
    x, x_scale, weight, weight_scale = _factors(R, OUT, IN, torch.float8_e4m3fn)
    expected = torch._scaled_mm(x, weight.t(), x_scale, weight_scale.t(), out_dtype=torch.bfloat16, use_fast_accum=True)
    assert torch.equal(few_rows_product(x, x_scale, weight, weight_scale), expected)


def test_nothing_in_gives_nothing() -> None:
    x, x_scale, weight, weight_scale = _factors(0, 32, 32, torch.float16)
    assert few_rows_product(x, x_scale, weight, weight_scale).shape == (0, 32)


def test_where_it_is_used() -> None:
    assert suits(32, 40_000)
    assert not suits(33, 40_000)  # enough tiles for torch's
    assert suits(128, 3584)
    assert not suits(129, 64)
