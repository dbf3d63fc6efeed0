"""One attention hook for training and sampling, through transformers' published attention interface.

A model loaded with `attn_implementation="whet"` calls `_attend` in every layer. What happens there is decided by the
`attention` object passed to the model's forward: packed attention when training or prefilling, attention over a
key-value cache when decoding, paged kernels on a GPU. The model's own modules stay untouched.

Everywhere in whet the model sees one packed row of tokens: ids and positions are (1, N), queries (1, H, N, D).
Left out: attention sinks and soft-capped attention scores (Gemma 2, gpt-oss); `_attend` refuses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import NamedTuple, Protocol, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, PretrainedConfig

from whet import kernels
from whet.errors import UserError
from whet.kernels.prefixes import prefix_rows

NAME = "whet"


def implementation(config: PretrainedConfig) -> str | dict[str, str]:
    """`attn_implementation` of a model: whet's hook in its decoder, torch's attention in what else it has."""
    text = config.get_text_config()
    if text is config:
        return NAME
    parts = {name: getattr(config, name, None) for name in config.sub_configs}
    return {"": NAME} | {name: NAME if part is text else "sdpa" for name, part in parts.items() if part is not None}


class Attention(Protocol):
    """Visibility of packed tokens in one forward pass, and of the tokens before them."""

    def attend(
        self, layer: int, query_HND: Tensor, key_HND: Tensor, value_HND: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """Return (N, H, D). `window` is the layer's sliding window in tokens, or None."""
        ...


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    attention: Attention | None = None,
    **_unused: object,
) -> tuple[Tensor, None]:
    if attention is None:
        raise TypeError("a model with attn_implementation='whet' needs `attention=` in its forward call")
    if softcap is not None or s_aux is not None:
        kind = type(module).__name__
        raise UserError(f"worker.actor.model.model_path: {kind} uses soft-capped or sink attention, which whet lacks")
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    out_NHD = attention.attend(cast(int, module.layer_idx), query[0], key[0], value[0], scale, sliding_window)
    return out_NHD.unsqueeze(0), None


AttentionInterface.register(NAME, _attend)


@dataclass(frozen=True, slots=True)
class Segment:
    """Tokens [start, start + length) see each other causally, and all of the prefix tokens before them.

    The prefix is the beginning of another segment, and before it what that one has as prefix itself.
    """

    start: int
    length: int
    prefix_start: int = 0
    prefix_length: int = 0


def packed_attention_for(segments: np.ndarray, device: torch.device | str) -> Attention:
    """The quickest packed attention that a device has; rows of `segments` are the fields of `Segment`."""
    if kernels.available(device):
        from whet.model.kernel_attention import KernelAttention  # imports triton, which not every machine has

        return KernelAttention(segments, device)
    return PackedAttention([Segment(*row) for row in segments.tolist()], device)


class PackedAttention:
    """Variable-length attention over segments of one packed row, each with an optional shared prefix.

    The prefix lies in other segments of the row: the prompt of several responses, packed once, or all that stands
    before a branch. Segments of similar size are gathered into one padded call of torch's fused attention; padding
    lives only inside that call.
    """

    def __init__(self, segments: Sequence[Segment], device: torch.device | str = "cpu") -> None:
        self.tokens = sum(s.length for s in segments)
        table = np.array([astuple(s) for s in segments], dtype=np.int64).reshape(-1, 4)
        known = [_Known(s.start, s.length, rows) for s, rows in zip(segments, prefix_rows(table))]
        self._buckets = [_Bucket(group, device) for group in _similar(known)]
        order = torch.cat([b.rows for b in self._buckets])
        self._scatter = torch.empty_like(order)
        self._scatter[order] = torch.arange(len(order), device=order.device)

    def attend(
        self, layer: int, query_HND: Tensor, key_HND: Tensor, value_HND: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """Attention of every packed token; (N, H, D)."""
        query_NHD, key_NHD, value_NHD = (x.transpose(0, 1) for x in (query_HND, key_HND, value_HND))
        parts = [b.attend(query_NHD, key_NHD, value_NHD, scale, window) for b in self._buckets]
        if len(parts) == 1 and self._buckets[0].in_order:
            return parts[0]
        return torch.cat(parts).index_select(0, self._scatter)


class _Known(NamedTuple):
    """A segment, and the rows of all that stands before it."""

    start: int
    length: int
    prefix: np.ndarray

    @property
    def prefix_length(self) -> int:
        return len(self.prefix)


def _similar(segments: Sequence[_Known], waste: float = 1.3) -> list[list[_Known]]:
    """Split segments into groups whose padded size stays within `waste` of the largest member's."""
    groups: list[list[_Known]] = []
    for segment in sorted(segments, key=lambda s: (s.prefix_length > 0, s.length, s.prefix_length)):
        if groups:
            first = groups[-1][0]
            same_kind = (first.prefix_length > 0) == (segment.prefix_length > 0)
            small = segment.length <= max(first.length * waste, first.length + 8)
            near = abs(segment.prefix_length - first.prefix_length) <= max(16, 0.3 * first.prefix_length)
            if same_kind and small and near:
                groups[-1].append(segment)
                continue
        groups.append([segment])
    return groups


class _Bucket:
    """Segments padded together: (S, L) queries against (S, P + L) keys."""

    def __init__(self, segments: Sequence[_Known], device: torch.device | str) -> None:
        start, length, prefix_length = (
            torch.tensor(column, device=device)
            for column in zip(*((s.start, s.length, s.prefix_length) for s in segments))
        )
        L, P = int(length.max()), int(prefix_length.max())
        own = torch.arange(L, device=device)
        self.valid = own < length[:, None]  # (S, L)
        queries = (start[:, None] + own).where(self.valid, start[:, None])
        prefix = torch.arange(P, device=device)
        self._prefix_valid = prefix < prefix_length[:, None]  # (S, P)
        rows = np.zeros((len(segments), P), dtype=np.int64)
        for each, segment in zip(rows, segments):
            each[: segment.prefix_length] = segment.prefix
        keys = torch.from_numpy(rows).to(device).where(self._prefix_valid, start[:, None])
        self.shape = (len(segments), L)
        self.rows = queries[self.valid]  # packed token index of every real query, in bucket order
        self.dense = bool(self.valid.all())
        self.in_order = bool((self.rows == torch.arange(len(self.rows), device=device)).all())
        self._queries = queries.flatten()
        self._keys = torch.cat([keys, queries], dim=1).flatten() if P else self._queries
        self._prefix_length, self._P = prefix_length, P
        self._masks: dict[int | None, Tensor | None] = {}

    def _mask(self, window: int | None) -> Tensor | None:
        """(S, 1, L, P + L) of what a query may see; None where plain causal attention says the same."""
        if window not in self._masks:
            S, L = self.shape
            if self._P == 0 and (window is None or window >= L):
                self._masks[window] = None
            else:
                device = self.valid.device
                own = torch.arange(L, device=device)
                distance = own[:, None] - own
                causal = distance >= 0
                before = self._prefix_valid[:, None, :].expand(S, L, self._P)
                if window is not None:
                    causal = causal & (distance < window)
                    prefix = torch.arange(self._P, device=device)
                    gap = self._prefix_length[:, None, None] + own[:, None] - prefix  # (S, L, P)
                    before = before & (gap < window)
                mask = torch.cat([before, causal.expand(S, L, L)], dim=2)
                self._masks[window] = mask.unsqueeze(1)
        return self._masks[window]

    def attend(self, query_NHD: Tensor, key_NHD: Tensor, value_NHD: Tensor, scale: float, window: int | None) -> Tensor:
        S, L = self.shape
        # When the row is this bucket and nothing else, there is nothing to gather.
        whole = self.in_order and self.dense and len(self.rows) == len(query_NHD)
        query = (query_NHD if whole else query_NHD.index_select(0, self._queries)).unflatten(0, (S, L))
        key, value = (
            (x if whole and not self._P else x.index_select(0, self._keys)).unflatten(0, (S, self._P + L))
            for x in (key_NHD, value_NHD)
        )
        mask = self._mask(window)
        out = F.scaled_dot_product_attention(
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            attn_mask=mask,
            is_causal=mask is None,
            scale=scale,
            enable_gqa=query.shape[2] != key.shape[2],
        )
        out = out.transpose(1, 2)  # (S, L, H, D)
        return out.flatten(0, 1) if self.dense else out[self.valid]
