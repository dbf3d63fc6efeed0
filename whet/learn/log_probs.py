"""Log-probs and entropies of tokens from hidden states, a chunk of rows at a time.

Logits for all tokens never exist at once: a chunk's logits are computed, reduced and dropped, and computed again in the
backward pass. Peak memory is one chunk, whatever the number of tokens or the size of the vocabulary.

On a GPU whet's kernels do it (`kernel_log_probs.py`).

Shapes: N tokens, C of them in a chunk, hidden size H, vocabulary V.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from whet import kernels
from whet.model.load import Head

_CHUNK_ELEMENTS = 2**24  # logits held at once: 64 MiB in fp32


def token_log_probs(hidden_NH: Tensor, head: Head, targets_N: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the log-prob of each target and the entropy of each distribution of logits / temperature.

    Both are (N,) in fp32, or in fp64 if the hidden states are.
    """
    if _use_kernels(hidden_NH, head.softcap):
        from whet.learn.kernel_log_probs import KernelTokenLogProbs

        return KernelTokenLogProbs.apply(hidden_NH, head.weight_VH, head.bias_V, targets_N, temperature, head.exact)
    return _TokenLogProbs.apply(hidden_NH, head.weight_VH, head.bias_V, targets_N, temperature, head.softcap)


def _use_kernels(hidden_NH: Tensor, softcap: float | None) -> bool:
    """Return True if the kernels can be used: they compute in fp32, from logits without a softcap."""
    return kernels.available(hidden_NH.device) and softcap is None and hidden_NH.dtype != torch.float64


def chunks(n: int, vocabulary: int) -> list[slice]:
    """Return slices of n rows whose logits fit in one chunk; at least one slice."""
    return slices(n, max(16, _CHUNK_ELEMENTS // vocabulary)) or [slice(0, 0)]


def slices(n: int, size: int) -> list[slice]:
    """Return slices of at most `size` of n rows."""
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
            # 1. Logits (C, V), and log Σ exp of each row (C,).
            z_CV = scaled_logits(hidden_NH[rows], weight_VH, bias_V, temperature, softcap)
            lse_C = torch.logsumexp(z_CV, dim=-1)
            # 2. Reduce to (C,): log-prob of the target, entropy. Only lse is kept for the backward pass.
            log_probs[rows] = z_CV.gather(1, targets_N[rows, None]).squeeze(1) - lse_C
            p_CV = torch.exp(z_CV - lse_C[:, None])
            entropy[rows] = lse_C - p_CV.mul_(z_CV).sum(dim=-1)
            normaliser[rows] = lse_C
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
            # 1. Logits (C, V) once more, and with the saved normaliser their log-probs.
            z_CV = scaled_logits(hidden_NH[rows], weight_VH, bias_V, ctx.temperature, ctx.softcap)
            log_p_CV = z_CV - normaliser[rows, None]
            # 2. Gradient of the logits (C, V), through temperature and softcap.
            grad_CV = _logit_gradient(
                log_p_CV,
                targets_N[rows],
                None if grad_log_probs is None else grad_log_probs[rows],
                None if grad_entropy is None else grad_entropy[rows],
                entropy[rows],
            ).div_(ctx.temperature)
            if ctx.softcap is not None:
                grad_CV *= 1 - (z_CV * (ctx.temperature / ctx.softcap)).square()  # d tanh
            grad_CV = grad_CV.to(hidden_NH.dtype)
            # 3. Gradients of hidden states (C, H), of the head's weight (V, H) and bias (V,), summed over chunks.
            if grad_hidden is not None:
                torch.mm(grad_CV, weight_VH, out=grad_hidden[rows])
            if grad_weight is not None:
                grad_weight.addmm_(grad_CV.t(), hidden_NH[rows])
            if grad_bias is not None:
                grad_bias += grad_CV.sum(dim=0)
        return grad_hidden, grad_weight, grad_bias, None, None, None


def _precise(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def scaled_logits(
    hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, temperature: float, softcap: float | None
) -> Tensor:
    """Return logits / temperature (N, V), in fp32 or fp64."""
    z = Head(weight_VH, bias_V, softcap).logits(hidden_NH).to(_precise(hidden_NH.dtype))
    return z if temperature == 1.0 else z / temperature


def _logit_gradient(
    log_p_NV: Tensor, targets_N: Tensor, grad_log_probs: Tensor | None, grad_entropy: Tensor | None, entropy_N: Tensor
) -> Tensor:
    """Return Σ g ∂/∂z (N, V), with ∂log p_t/∂z = onehot − p and ∂H/∂z = −p (log p + H)."""
    grad = log_p_NV.exp()
    if grad_log_probs is None:
        grad_log_probs = torch.zeros_like(entropy_N)
    if grad_entropy is None:
        grad.mul_(-grad_log_probs[:, None])
    else:
        grad.mul_(-grad_log_probs[:, None] - grad_entropy[:, None] * (log_p_NV + entropy_N[:, None]))
    return grad.scatter_add_(1, targets_N[:, None], grad_log_probs[:, None])
