"""Packed attention by whet's own kernels: no gathering, no padding, no copies of shared prefixes or grouped heads."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from whet.kernels.layout import Layout
from whet.kernels.packed_attention import packed_attention
from whet.kernels.packed_attention_backward import packed_attention_backward
from whet.kernels.paged_attention import paged_attention
from whet.kernels.prefixes import prefix_rows
from whet.model.attention import PackedAttention, Segment
from whet.model.exact import in_exact_mode

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class KernelAttention:
    """The same attention as `PackedAttention`, which it falls back on for sizes that the kernels do not have."""

    def __init__(self, segments: np.ndarray, device: torch.device | str) -> None:
        self._segments, self._device = segments, device
        self._layout: Layout | None = None
        self._pages: _RowsAsPages | None = None
        self._plain: PackedAttention | None = None

    def attend(
        self, layer: int, query_HND: Tensor, key_HND: Tensor, value_HND: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """Attention of every packed token; (N, H, D)."""
        head_dim = query_HND.shape[-1]
        if query_HND.dtype not in _DTYPES or head_dim & (head_dim - 1) or not 16 <= head_dim <= 256:
            if self._plain is None:
                self._plain = PackedAttention([Segment(*row) for row in self._segments.tolist()], self._device)
            return self._plain.attend(layer, query_HND, key_HND, value_HND, scale, window)
        if self._layout is None:
            self._layout = Layout(self._segments, self._device)
        q_NHD, k_NKD, v_NKD = (x.transpose(0, 1) for x in (query_HND, key_HND, value_HND))
        if not in_exact_mode():
            return packed_attention(q_NHD, k_NKD, v_NKD, self._layout, scale, window)
        if self._pages is None:
            self._pages = _RowsAsPages(self._segments, self._device)
        return _ExactAttention.apply(q_NHD, k_NKD, v_NKD, self._layout, self._pages, scale, window)


class _RowsAsPages:
    """The packed row as a cache with pages of one token, so that decoding's own kernel can read it."""

    def __init__(self, segments: np.ndarray, device: torch.device | str) -> None:
        prefixes = prefix_rows(segments)
        longest = max(own + len(prefix) for own, prefix in zip(segments[:, 1].tolist(), prefixes))
        table = np.zeros((len(segments), longest), dtype=np.int32)
        tokens = int(segments[:, 1].sum())
        rows, lengths = np.zeros(tokens, dtype=np.int64), np.zeros(tokens, dtype=np.int32)
        for i, (first, own, _, _) in enumerate(segments.tolist()):
            shared = len(prefixes[i])
            table[i, :shared] = prefixes[i]
            table[i, shared : shared + own] = np.arange(first, first + own)
            rows[first : first + own] = i
            lengths[first : first + own] = shared + 1 + np.arange(own)
        self.table, self.rows_N, self.lengths_N = (torch.from_numpy(x).to(device) for x in (table, rows, lengths))


class _ExactAttention(torch.autograd.Function):
    """Every token attends as it would when it was decoded: with the same kernel, hence the same bits."""

    @staticmethod
    def forward(
        ctx: Any,
        q_NHD: Tensor,
        k_NKD: Tensor,
        v_NKD: Tensor,
        layout: Layout,
        pages: _RowsAsPages,
        scale: float,
        window: int | None,
    ) -> Tensor:
        keys, values = k_NKD.unsqueeze(2), v_NKD.unsqueeze(2)  # (N, K, 1, D): pages of one token
        out, lse = paged_attention(
            q_NHD, keys, values, pages.table, pages.rows_N, pages.lengths_N, scale, window, return_lse=True
        )
        ctx.save_for_backward(q_NHD, k_NKD, v_NKD, out, lse)
        ctx.given = (layout, scale, window)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out_NHD: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        grads = packed_attention_backward(grad_out_NHD, *ctx.saved_tensors, *ctx.given)
        return *grads, None, None, None, None
