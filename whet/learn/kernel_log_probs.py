"""Log-probs and entropies of tokens on a GPU: a kernel reduces a chunk of logits, or turns it into its gradient.

Each is one pass, in the dtype of the model. Shapes as in `log_probs.py`: N tokens, C of them in a chunk, hidden size H,
vocabulary V.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from whet.kernels.log_probs import logit_gradient_, row_statistics
from whet.learn.log_probs import slices
from whet.model.load import Head
from whet.model.weights import add_product_, adds_in_place

_KERNEL_CHUNK_ELEMENTS = 2**28  # logits held at once; larger products are faster: 512 MiB in bf16


class KernelTokenLogProbs(torch.autograd.Function):
    """`_TokenLogProbs` on a GPU: a product, then one kernel over its logits; backward, the gradient overwrites them."""

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
        log_probs = torch.empty(len(targets_N), dtype=torch.float32, device=hidden_NH.device)
        entropy, normaliser = torch.empty_like(log_probs), torch.empty_like(log_probs)
        for rows in _kernel_chunks(len(targets_N), len(weight_VH)):
            # (C, H) → logits (C, V) → three statistics of each row (C,).
            logits_CV = Head(weight_VH, bias_V, None, exact).logits(hidden_NH[rows])
            log_probs_C, lse_C, entropy_C = row_statistics(logits_CV, targets_N[rows], temperature, want_entropy=True)
            assert entropy_C is not None, "it was asked for"
            log_probs[rows], normaliser[rows], entropy[rows] = log_probs_C, lse_C, entropy_C
            del logits_CV  # the next chunk reuses its memory
        ctx.save_for_backward(hidden_NH, weight_VH, bias_V, targets_N, normaliser, entropy)
        ctx.temperature = temperature
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
        # Sums over chunks are kept in fp32; autograd rounds them to the dtype in which the gradient is wanted.
        added = need_weight and adds_in_place(weight_VH, hidden_NH)
        grad_weight = weight_VH.grad if added else None
        if need_weight and not added:
            grad_weight = torch.zeros_like(weight_VH, dtype=torch.float32)
        grad_bias = torch.zeros_like(bias_V, dtype=torch.float32) if need_bias else None
        for rows in _kernel_chunks(len(targets_N), len(weight_VH)):
            # 1. Logits (C, V) once more, overwritten by their gradient.
            grad_CV = F.linear(hidden_NH[rows], weight_VH, bias_V)
            logit_gradient_(
                grad_CV,
                targets_N[rows],
                normaliser[rows],
                entropy[rows],
                None if grad_log_probs is None else grad_log_probs[rows].contiguous(),
                None if grad_entropy is None else grad_entropy[rows].contiguous(),
                ctx.temperature,
            )
            # 2. Gradients of hidden states (C, H), of the head's weight (V, H) and bias (V,).
            if grad_hidden is not None:
                torch.mm(grad_CV, weight_VH, out=grad_hidden[rows])
            if grad_weight is not None:
                add_product_(grad_weight, grad_CV.t(), hidden_NH[rows])
            if grad_bias is not None:
                grad_bias += grad_CV.sum(dim=0, dtype=torch.float32)
            del grad_CV
        return grad_hidden, None if added else grad_weight, grad_bias, None, None, None


def _kernel_chunks(n: int, vocabulary: int) -> list[slice]:
    return slices(n, max(128, _KERNEL_CHUNK_ELEMENTS // vocabulary // 128 * 128))  # whole tiles of the products
