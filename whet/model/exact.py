"""A model whose every token has the same bits in any batch, so that sampler and trainer agree to the last one.

`with ExactMode(): model(...)` runs the model's own modules; torch's published override interface hands us each function
they call. Those that add numbers up in an order the library picks by the size of the batch go to the kernels of
`whet.kernels.exact`: products, sums, means, and the norms and softmaxes made of them. Functions of one element at a
time pass. What we cannot make exact is refused rather than let through: batched products, convolutions, variances.

Attention is the caller's: it comes in through `model/attention.py`, and torch's own is not looked at here. Gradients
are plain ones, from the library. Under gradient checkpointing, call backward inside the mode too: it runs the forward
again. Imports triton: ask `whet.kernels.available` first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

from whet.errors import UserError
from whet.kernels import exact as kernels

_ACTIVE: ContextVar[bool] = ContextVar("exact", default=False)
_mm = torch.ops.aten.mm  # not routed, so that a backward inside the mode stays the library's


class ExactMode(TorchFunctionMode):
    """Inside it, no token's numbers depend on the other tokens of the batch."""

    def __enter__(self) -> Self:
        """Begin; attention asks `in_exact_mode` which of its kernels to use."""
        self._token = _ACTIVE.set(True)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        """End."""
        super().__exit__(*error)
        _ACTIVE.reset(self._token)

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run `func`, or the exact function in its place; the mode is off meanwhile."""
        return _ROUTES.get(func, func)(*args, **(kwargs or {}))


def in_exact_mode() -> bool:
    """True while a model runs in exact mode."""
    return _ACTIVE.get()


def exact_linear(x: Tensor, w_NK: Tensor, b_N: Tensor | None = None) -> Tensor:
    """F.linear of (..., K), whose rows depend on nothing but themselves and the weight."""
    x_MK = x.reshape(-1, x.shape[-1])
    inputs = (x_MK, w_NK) if b_N is None else (x_MK, w_NK, b_N)
    if torch.is_grad_enabled() and any(t.requires_grad for t in inputs):
        y_MN = _Linear.apply(x_MK, w_NK, b_N)
    else:
        y_MN = kernels.linear(x_MK, w_NK, b_N)
    return y_MN.view(*x.shape[:-1], w_NK.shape[0])


class _Linear(torch.autograd.Function):
    """The product with the kernel's forward and the library's gradients."""

    @staticmethod
    def forward(ctx: Any, x_MK: Tensor, w_NK: Tensor, b_N: Tensor | None) -> Tensor:
        needs_x, needs_w, _ = ctx.needs_input_grad
        ctx.save_for_backward(x_MK if needs_w else None, w_NK if needs_x else None)
        return kernels.linear(x_MK, w_NK, b_N)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_MN: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x_MK, w_NK = ctx.saved_tensors
        needs_x, needs_w, needs_b = ctx.needs_input_grad
        return (
            _mm(grad_MN, w_NK) if needs_x else None,
            _mm(grad_MN.t(), x_MK) if needs_w else None,
            torch.ops.aten.sum.dim_IntList(grad_MN, [0]) if needs_b else None,
        )


class _RowSum(torch.autograd.Function):
    """Sums or means of rows."""

    @staticmethod
    def forward(ctx: Any, x_MK: Tensor, mean: bool) -> Tensor:
        ctx.shape, ctx.mean = x_MK.shape, mean
        return kernels.row_sum(x_MK, mean)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_M: Tensor) -> tuple[Tensor, None]:
        if ctx.mean:
            grad_M = grad_M / ctx.shape[1]
        return grad_M[:, None].expand(ctx.shape), None


def _reduce(x: Tensor, dim: int | Sequence[int] | None, keepdim: bool, mean: bool) -> Tensor:
    """Sum or mean over any dimensions."""
    dims = range(x.ndim) if dim is None or dim == () else [dim] if isinstance(dim, int) else dim
    dims = sorted(d % x.ndim for d in dims) if x.ndim else []
    kept = [d for d in range(x.ndim) if d not in dims]
    shape = torch.Size(x.shape[d] for d in kept)
    K = torch.Size(x.shape[d] for d in dims).numel()
    x_MK = x.permute(*kept, *dims).reshape(shape.numel(), K)
    if torch.is_grad_enabled() and x_MK.requires_grad:
        y = _RowSum.apply(x_MK, mean)
    else:
        y = kernels.row_sum(x_MK, mean)
    return y.view([1 if d in dims else x.shape[d] for d in range(x.ndim)] if keepdim else shape)


def _sum(
    input: Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    input = input if dtype is None else input.to(dtype)
    if not input.is_floating_point():
        return torch.sum(input, dim if dim is None or isinstance(dim, int) else tuple(dim), keepdim)
    return _reduce(input, dim, keepdim, mean=False)


def _mean(
    input: Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    return _reduce(input if dtype is None else input.to(dtype), dim, keepdim, mean=True)


def _matmul(input: Tensor, other: Tensor) -> Tensor:
    """Products with a matrix or a vector; in the kernel an element depends on its row and its column alone."""
    if input.ndim == 1:
        return _matmul(input[None], other).squeeze(-2 if other.ndim > 1 else -1)
    if other.ndim == 1:
        return exact_linear(input, other[None]).squeeze(-1)
    if input.shape[-1] == 1:  # an outer product, as of positions and frequencies, adds nothing up
        return input * other
    if other.ndim == 2:
        return exact_linear(input, other.t())
    if input.ndim == 2:
        return exact_linear(other.mT, input).mT
    raise _refusal("torch.matmul of two batches")


def _right_matmul(input: Tensor, other: Tensor) -> Tensor:
    return _matmul(other, input)


def _addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    if (beta, alpha) != (1, 1) or input.ndim != 1:
        raise _refusal("torch.addmm with beta, alpha or a matrix")
    return exact_linear(mat1, mat2.t(), input)


def _rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Compute in fp32 and round once, as torch does."""
    x = _widened(input)
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    y = x * torch.rsqrt(_mean(x * x, _last(normalized_shape), keepdim=True) + eps)
    return (y if weight is None else y * weight).to(input.dtype)


def _layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    x, dims = _widened(input), _last(normalized_shape)
    x = x - _mean(x, dims, keepdim=True)
    y = x * torch.rsqrt(_mean(x * x, dims, keepdim=True) + eps)
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias).to(input.dtype)


def _last(normalized_shape: Sequence[int]) -> list[int]:
    return list(range(-len(normalized_shape), 0))


def _widened(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _exponentials(x: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """exp(x - max), its sum, and the max, along `dim`."""
    highest = x.detach().amax(dim, keepdim=True)
    powers = torch.exp(x - highest)
    return powers, _sum(powers, dim, keepdim=True), highest


def _softmax(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    powers, total, _ = _exponentials(_widened(input if dtype is None else input.to(dtype)), dim)
    return (powers / total).to(dtype or input.dtype)


def _log_softmax(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    x = _widened(input if dtype is None else input.to(dtype))
    _, total, highest = _exponentials(x, dim)
    return (x - highest - total.log()).to(dtype or input.dtype)


def _functional(softmax: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """torch.nn.functional's signature, which has `_stacklevel` before dtype."""

    def call(input: Tensor, dim: int, _stacklevel: int = 3, dtype: torch.dtype | None = None) -> Tensor:
        return softmax(input, dim, dtype)

    return call


def _logsumexp(input: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    x = _widened(input)
    highest = x.detach().amax(dim, keepdim=True)
    highest = highest.where(highest.isfinite(), 0)
    y = (_sum(torch.exp(x - highest), dim, keepdim=True).log() + highest).to(input.dtype)
    return y if keepdim else y.squeeze(dim)


def _refusal(name: str) -> UserError:
    return UserError(
        f"worker.rollout.exact: this model calls {name}, whose result depends on the batch, and whet has no exact one; "
        "set worker.rollout.exact=false"
    )


def _refused(func: Callable[..., Any]) -> Callable[..., Any]:
    def refuse(*args: object, **kwargs: object) -> None:
        raise _refusal(f"{getattr(func, '__module__', None) or 'torch'}.{func.__name__}")

    return refuse


def _named(names: str) -> list[Callable[..., Any]]:
    """Every function of these names that this torch has, in each place a model may call it."""
    places = (torch, torch.Tensor, F, torch.linalg, torch.special)
    return [f for name in names.split() for place in places if (f := getattr(place, name, None)) is not None]


_ROUTES: dict[Callable[..., Any], Callable[..., Any]] = {
    **{
        func: _refused(func)
        for func in _named(
            "bmm baddbmm addbmm addmv dot vdot inner tensordot einsum bilinear grouped_mm _grouped_mm scaled_mm "
            "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "
            "var std var_mean std_mean norm vector_norm normalize group_norm batch_norm instance_norm "
            "cosine_similarity softmin gumbel_softmax avg_pool1d adaptive_avg_pool1d multi_head_attention_forward"
        )
    },
    **dict.fromkeys(_named("sum"), _sum),
    **dict.fromkeys(_named("mean"), _mean),
    **dict.fromkeys(_named("matmul mm mv __matmul__"), _matmul),
    **dict.fromkeys(_named("__rmatmul__"), _right_matmul),
    **dict.fromkeys(_named("addmm"), _addmm),
    **dict.fromkeys(_named("rms_norm"), _rms_norm),
    **dict.fromkeys(_named("layer_norm"), _layer_norm),
    **dict.fromkeys(_named("softmax"), _softmax),
    **dict.fromkeys(_named("log_softmax"), _log_softmax),
    **dict.fromkeys(_named("logsumexp"), _logsumexp),
    F.softmax: _functional(_softmax),
    F.log_softmax: _functional(_log_softmax),
    F.linear: exact_linear,
}
