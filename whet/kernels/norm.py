"""RMS normalisation fused with the addition to the residual stream before it, and its gradient.

Sums are in fp32. As in transformers, Llama's kind (offset 0) rounds the normalised x to its dtype before the product
with the weight; Gemma's (offset 1) multiplies by 1 + weight in fp32 and rounds once. A row's bits depend on that row
alone: one program has it, whatever else is in the batch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# Warps that share the rows of a backward pass: a constant, not the device's size, so that the weight's gradient is
# summed in the same order everywhere. 132 multiprocessors times 32 warps.
_BACKWARD_WARPS = 4224


@triton.jit
def weighted(hat, weight, OFFSET: tl.constexpr, dtype: tl.constexpr):
    """The normalised values times the norm's weight, in fp32, rounded where transformers rounds."""
    if OFFSET == 0.0:
        hat = hat.to(dtype).to(tl.float32)
    return hat * (weight + OFFSET)


@triton.jit
def _add_rms_norm(
    delta_NH,
    residual_NH,
    weight_H,
    sum_NH,
    y_NH,
    rstd_N,
    eps,
    H: tl.constexpr,
    OFFSET: tl.constexpr,
    ADD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    inside = cols < H
    weight = tl.load(weight_H + cols, mask=inside, other=0.0).to(tl.float32)
    x = tl.load(delta_NH + row * H + cols, mask=inside, other=0.0)
    if ADD:
        residual = tl.load(residual_NH + row * H + cols, mask=inside, other=0.0)
        x = (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype)
        tl.store(sum_NH + row * H + cols, x, mask=inside)
    x = x.to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x, axis=0) / H + eps)
    y = weighted(x * rstd, weight, OFFSET, y_NH.dtype.element_ty)
    tl.store(y_NH + row * H + cols, y.to(y_NH.dtype.element_ty), mask=inside)
    tl.store(rstd_N + row, rstd)


@triton.jit
def _normalise(sum_NH, rstd_N, weight_H, y_NH, H: tl.constexpr, OFFSET: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    inside = cols < H
    weight = tl.load(weight_H + cols, mask=inside, other=0.0).to(tl.float32)
    x = tl.load(sum_NH + row * H + cols, mask=inside, other=0.0).to(tl.float32)
    y = weighted(x * tl.load(rstd_N + row), weight, OFFSET, y_NH.dtype.element_ty)
    tl.store(y_NH + row * H + cols, y.to(y_NH.dtype.element_ty), mask=inside)


# N and P change from batch to batch: a multiple of 16 would otherwise be one more compilation, in the midst of a run.
@triton.jit(do_not_specialize=["N", "P"])
def _add_rms_norm_backward(
    grad_y_NH,
    grad_sum_NH,
    sum_NH,
    rstd_N,
    weight_H,
    grad_NH,
    partial_PH,
    N,
    P,
    H: tl.constexpr,
    OFFSET: tl.constexpr,
    ADD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    cols = tl.arange(0, BLOCK)
    inside = cols < H
    scale = tl.load(weight_H + cols, mask=inside, other=0.0).to(tl.float32) + OFFSET
    grad_weight = tl.zeros([BLOCK], dtype=tl.float32)
    start = tl.program_id(0).to(tl.int64)
    for step in tl.range(0, tl.cdiv(N - tl.program_id(0), P), num_stages=2):
        row = start + step * P
        x = tl.load(sum_NH + row * H + cols, mask=inside, other=0.0)
        grad_y = tl.load(grad_y_NH + row * H + cols, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_N + row)
        hat = x.to(tl.float32) * rstd
        if OFFSET == 0.0:
            grad_weight += grad_y * hat.to(x.dtype).to(tl.float32)
        else:
            grad_weight += grad_y * hat
        grad_hat = grad_y * scale
        grad = rstd * (grad_hat - hat * (tl.sum(grad_hat * hat, axis=0) / H))
        if ADD:
            grad += tl.load(grad_sum_NH + row * H + cols, mask=inside, other=0.0).to(tl.float32)
        tl.store(grad_NH + row * H + cols, grad.to(grad_NH.dtype.element_ty), mask=inside)
    tl.store(partial_PH + tl.program_id(0) * H + cols, grad_weight, mask=inside)


def add_rms_norm(
    delta_NH: Tensor, residual_NH: Tensor | None, weight_H: Tensor, eps: float, offset: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The norm of residual + delta, that sum, and the fp32 rstd_N; without a residual the sum is `delta_NH` itself."""
    N, H = delta_NH.shape
    delta_NH = delta_NH.contiguous()
    add = residual_NH is not None
    residual_NH = residual_NH.contiguous() if residual_NH is not None else delta_NH
    sum_NH = torch.empty_like(delta_NH) if add else delta_NH
    y_NH = torch.empty_like(delta_NH)
    rstd_N = torch.empty(N, dtype=torch.float32, device=delta_NH.device)
    if N:
        block, warps = _block(H)
        _add_rms_norm[(N,)](
            delta_NH, residual_NH, weight_H, sum_NH, y_NH, rstd_N, eps, H, offset, add, block, num_warps=warps
        )
    return y_NH, sum_NH, rstd_N


def normalise(sum_NH: Tensor, rstd_N: Tensor, weight_H: Tensor, offset: float) -> Tensor:
    """The output of `add_rms_norm` again, bit for bit, from what it left: for a backward that did not keep it."""
    N, H = sum_NH.shape
    y_NH = torch.empty_like(sum_NH)
    if N:
        block, warps = _block(H)
        _normalise[(N,)](sum_NH, rstd_N, weight_H, y_NH, H, offset, block, num_warps=warps)
    return y_NH


def add_rms_norm_backward(
    grad_y_NH: Tensor, grad_sum_NH: Tensor | None, sum_NH: Tensor, rstd_N: Tensor, weight_H: Tensor, offset: float
) -> tuple[Tensor, Tensor]:
    """Gradients of the sum (which is that of delta and of the residual), and of the weight in fp32."""
    N, H = sum_NH.shape
    grad_y_NH = grad_y_NH.contiguous()
    add = grad_sum_NH is not None
    grad_sum_NH = grad_sum_NH.contiguous() if grad_sum_NH is not None else grad_y_NH
    grad_NH = torch.empty_like(sum_NH)
    if not N:
        return grad_NH, torch.zeros(H, dtype=torch.float32, device=sum_NH.device)
    block, warps = _block(H)
    programs = min(N, _BACKWARD_WARPS // warps)
    partial_PH = torch.empty(programs, H, dtype=torch.float32, device=sum_NH.device)
    _add_rms_norm_backward[(programs,)](
        grad_y_NH,
        grad_sum_NH,
        sum_NH,
        rstd_N,
        weight_H,
        grad_NH,
        partial_PH,
        N,
        programs,
        H,
        offset,
        add,
        block,
        num_warps=warps,
    )
    return grad_NH, partial_PH.sum(0)


def _block(H: int) -> tuple[int, int]:
    """Columns of a program, the next power of two, and its warps: 16 values a thread."""
    block = triton.next_power_of_2(H)
    return block, max(1, min(16, block // 512))
