"""Log-probs and entropies of tokens straight from hidden states, a chunk of rows at a time.

Logits for all tokens never exist at once: a chunk's logits are made, reduced and dropped, and made again in the
backward pass. Peak memory is one chunk, whatever the number of tokens or the size of the vocabulary.

On a GPU whet's kernels reduce a chunk, and turn it into its gradient, in one pass each, in the dtype of the model.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from whet import kernels
from whet.model.load import Head

_CHUNK_ELEMENTS = 2**24  # logits held at once: 64 MiB in fp32
_KERNEL_CHUNK_ELEMENTS = 2**28  # on a GPU, whose products want to be large: 512 MiB in bf16


def token_log_probs(hidden_NH: Tensor, head: Head, targets_N: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-prob of each target and entropy of each distribution of logits / temperature.

    Both are (N,) in fp32, or in fp64 when the hidden states are.
    """
    if _use_kernels(hidden_NH, head.softcap):
        return _KernelTokenLogProbs.apply(hidden_NH, head.weight_VH, head.bias_V, targets_N, temperature, head.exact)
    return _TokenLogProbs.apply(hidden_NH, head.weight_VH, head.bias_V, targets_N, temperature, head.softcap)


def _use_kernels(hidden_NH: Tensor, softcap: float | None) -> bool:
    """Kernels compute in fp32, from logits as the product left them."""
    return kernels.available(hidden_NH.device) and softcap is None and hidden_NH.dtype != torch.float64


def chunks(n: int, vocabulary: int) -> list[slice]:
    """Rows to take at a time so that their logits stay within the memory of one chunk; at least one slice."""
    return _slices(n, max(16, _CHUNK_ELEMENTS // vocabulary)) or [slice(0, 0)]


def _slices(n: int, size: int) -> list[slice]:
    return [slice(i, min(i + size, n)) for i in range(0, n, size)]


class _TokenLogProbs(torch.autograd.Function):
    """z = softcap(W h + b) / T;  log p = z_target − lse(z);  H = lse(z) − Σ p z."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        temperature: float,
        softcap: float | None,
    ) -> tuple[Tensor, Tensor]:
        N = len(targets_N)
        log_probs = torch.empty(N, dtype=_precise(hidden_NH.dtype), device=hidden_NH.device)
        entropy, normaliser = torch.empty_like(log_probs), torch.empty_like(log_probs)
        for rows in chunks(N, len(weight_VH)):
            z = scaled_logits(hidden_NH[rows], weight_VH, bias_V, temperature, softcap)
            lse = torch.logsumexp(z, dim=-1)
            log_probs[rows] = z.gather(1, targets_N[rows, None]).squeeze(1) - lse
            p = torch.exp(z - lse[:, None])
            entropy[rows] = lse - p.mul_(z).sum(dim=-1)
            normaliser[rows] = lse
        ctx.save_for_backward(hidden_NH, weight_VH, bias_V, targets_N, normaliser, entropy)
        ctx.temperature, ctx.softcap = temperature, softcap
        ctx.set_materialize_grads(False)
        return log_probs, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_log_probs: Tensor | None, grad_entropy: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden_NH, weight_VH, bias_V, targets_N, normaliser, entropy = ctx.saved_tensors
        need_hidden, need_weight, need_bias = ctx.needs_input_grad[:3]
        if grad_log_probs is None and grad_entropy is None:
            return (None,) * 6
        grad_hidden = torch.empty_like(hidden_NH) if need_hidden else None
        grad_weight = torch.zeros_like(weight_VH) if need_weight else None
        grad_bias = torch.zeros_like(bias_V) if need_bias else None
        for rows in chunks(len(targets_N), len(weight_VH)):
            z = scaled_logits(hidden_NH[rows], weight_VH, bias_V, ctx.temperature, ctx.softcap)
            log_p = z - normaliser[rows, None]
            grad_z = _logit_gradient(
                log_p,
                targets_N[rows],
                None if grad_log_probs is None else grad_log_probs[rows],
                None if grad_entropy is None else grad_entropy[rows],
                entropy[rows],
            ).div_(ctx.temperature)
            if ctx.softcap is not None:
                grad_z *= 1 - (z * (ctx.temperature / ctx.softcap)).square()  # d tanh
            grad_z = grad_z.to(hidden_NH.dtype)
            if grad_hidden is not None:
                torch.mm(grad_z, weight_VH, out=grad_hidden[rows])
            if grad_weight is not None:
                grad_weight.addmm_(grad_z.t(), hidden_NH[rows])
            if grad_bias is not None:
                grad_bias += grad_z.sum(dim=0)
        return grad_hidden, grad_weight, grad_bias, None, None, None


class _KernelTokenLogProbs(torch.autograd.Function):
    """The same on a GPU: a product, then one pass over its logits, which the gradient overwrites in place."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        temperature: float,
        exact: bool,
    ) -> tuple[Tensor, Tensor]:
        from whet.kernels.log_probs import row_statistics

        log_probs = torch.empty(len(targets_N), dtype=torch.float32, device=hidden_NH.device)
        entropy, normaliser = torch.empty_like(log_probs), torch.empty_like(log_probs)
        for rows in _kernel_chunks(len(targets_N), len(weight_VH)):
            logits_NV = Head(weight_VH, bias_V, None, exact).logits(hidden_NH[rows])
            found = row_statistics(logits_NV, targets_N[rows], temperature, want_entropy=True)
            for whole, part in zip((log_probs, normaliser, entropy), found):
                whole[rows] = cast(Tensor, part)
            del logits_NV  # the next chunk takes its place
        ctx.save_for_backward(hidden_NH, weight_VH, bias_V, targets_N, normaliser, entropy)
        ctx.temperature = temperature
        ctx.set_materialize_grads(False)
        return log_probs, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_log_probs: Tensor | None, grad_entropy: Tensor | None) -> tuple[Tensor | None, ...]:
        from whet.kernels.log_probs import logit_gradient_

        hidden_NH, weight_VH, bias_V, targets_N, normaliser, entropy = ctx.saved_tensors
        need_hidden, need_weight, need_bias = ctx.needs_input_grad[:3]
        if grad_log_probs is None and grad_entropy is None:
            return (None,) * 6
        grad_hidden = torch.empty_like(hidden_NH) if need_hidden else None
        # Sums over chunks are kept in fp32; autograd rounds them to the dtype in which the gradient is wanted.
        grad_weight = torch.zeros_like(weight_VH, dtype=torch.float32) if need_weight else None
        grad_bias = torch.zeros_like(bias_V, dtype=torch.float32) if need_bias else None
        for rows in _kernel_chunks(len(targets_N), len(weight_VH)):
            grad_NV = F.linear(hidden_NH[rows], weight_VH, bias_V)
            logit_gradient_(
                grad_NV,
                targets_N[rows],
                normaliser[rows],
                entropy[rows],
                None if grad_log_probs is None else grad_log_probs[rows].contiguous(),
                None if grad_entropy is None else grad_entropy[rows].contiguous(),
                ctx.temperature,
            )
            if grad_hidden is not None:
                torch.mm(grad_NV, weight_VH, out=grad_hidden[rows])
            if grad_weight is not None:
                _add_product_(grad_weight, grad_NV.t(), hidden_NH[rows])
            if grad_bias is not None:
                grad_bias += grad_NV.sum(dim=0, dtype=torch.float32)
            del grad_NV
        return grad_hidden, grad_weight, grad_bias, None, None, None


def _kernel_chunks(n: int, vocabulary: int) -> list[slice]:
    return _slices(n, max(128, _KERNEL_CHUNK_ELEMENTS // vocabulary // 128 * 128))  # whole tiles of the products


def _add_product_(total_VH: Tensor, left_VN: Tensor, right_NH: Tensor) -> None:
    """total += left @ right, with a total in fp32 that no product is rounded before it joins."""
    if left_VN.dtype == total_VH.dtype:
        total_VH.addmm_(left_VN, right_NH)
    elif left_VN.is_cuda:
        total_VH += torch.mm(left_VN, right_NH, out_dtype=torch.float32)
    else:
        total_VH += left_VN.float() @ right_NH.float()


def _precise(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def scaled_logits(
    hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, temperature: float, softcap: float | None
) -> Tensor:
    """Logits / temperature (N, V), in fp32 or better."""
    z = Head(weight_VH, bias_V, softcap).logits(hidden_NH).to(_precise(hidden_NH.dtype))
    return z if temperature == 1.0 else z / temperature


def _logit_gradient(
    log_p_NV: Tensor, targets_N: Tensor, grad_log_probs: Tensor | None, grad_entropy: Tensor | None, entropy_N: Tensor
) -> Tensor:
    """Σ g ∂/∂z, with ∂log p_t/∂z = onehot − p and ∂H/∂z = −p (log p + H)."""
    grad = log_p_NV.exp()
    if grad_log_probs is None:
        grad_log_probs = torch.zeros_like(entropy_N)
    if grad_entropy is None:
        grad.mul_(-grad_log_probs[:, None])
    else:
        grad.mul_(-grad_log_probs[:, None] - grad_entropy[:, None] * (log_p_NV + entropy_N[:, None]))
    return grad.scatter_add_(1, targets_N[:, None], grad_log_probs[:, None])
