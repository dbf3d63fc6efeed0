"""Parts of gpu_large_verl.py that verl's processes import: a reward, and attention over packed samples.

verl attends to packed samples (`use_remove_padding`) through flash-attn. Where that is not installed, torch's own
FlashAttention takes its place: importing this file (verl's `external_lib`) registers it with transformers as
`torch_varlen`.
"""

from __future__ import annotations

import inspect
import random
import weakref
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

NAME = "torch_varlen"
_last: tuple[weakref.ref[Tensor], tuple[Tensor, int]] | None = None


def compute_score(data_source: str, solution_str: str, ground_truth: str, **_: Any) -> float:
    """A number for each text, which is the same wherever the text is."""
    return random.Random(solution_str).random()


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    position_ids: Tensor,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Causal attention within each sample of one packed row.

    Query is [1, heads, tokens, size], keys and values have fewer heads; a sample starts where its position is 0.
    """
    offsets, longest = sample_offsets(position_ids)
    rows = [x[0].transpose(0, 1).contiguous() for x in (query, key, value)]  # [tokens, heads, size]
    return _varlen(*rows, offsets, longest, scaling)[None], None


def sample_offsets(position_ids: Tensor) -> tuple[Tensor, int]:
    """First token of each sample and the end of the last, int32; the length of the longest sample.

    Computed once for the layers of a pass, which all get the same tensor: reading the longest waits for the device.
    """
    global _last
    if _last is None or _last[0]() is not position_ids:
        (positions,) = position_ids
        starts = (positions == 0).nonzero().flatten()
        offsets = torch.cat([starts, starts.new_tensor([len(positions)])]).to(torch.int32)
        _last = weakref.ref(position_ids), (offsets, int(offsets.diff().max()))
    return _last[1]


def _varlen(query: Tensor, key: Tensor, value: Tensor, offsets: Tensor, longest: int, scale: float | None) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    grouped: dict[str, Any] = {}
    if "enable_gqa" in inspect.signature(varlen_attn).parameters:  # from torch 2.12 on
        grouped["enable_gqa"] = True
    else:
        key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    return varlen_attn(
        query, key, value, offsets, offsets, longest, longest, scale=scale, window_size=(-1, 0), **grouped
    )


AttentionInterface.register(NAME, attend)
