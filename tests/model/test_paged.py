"""Attention of chunks behind what is in the paged cache: the same as of the whole sequence at once."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytest.importorskip("triton", reason="paged attention is made of triton kernels")

from whet.model.exact import ExactMode
from whet.model.paged import ExtendingAttention

H, K, D, PAGE = 2, 1, 16, 4
PAGES = np.array([[5, 2, 7, 1], [3, 6, 0, 0]])  # of two sequences, in order
LENGTHS = (14, 7)
SCALE = 0.3


def _reference(q_HND: Tensor, k_HND: Tensor, v_HND: Tensor, window: int | None) -> Tensor:
    """(N, H, D) by torch's attention over one whole sequence."""
    at = torch.arange(q_HND.shape[1], device=q_HND.device)
    gap = at[:, None] - at
    seen = (gap >= 0) & (gap < (window or len(at)))
    out = F.scaled_dot_product_attention(q_HND, k_HND, v_HND, attn_mask=seen, scale=SCALE, enable_gqa=True)
    return out.transpose(0, 1)


@pytest.mark.parametrize("mode", [nullcontext, ExactMode])
@pytest.mark.parametrize("window", [None, 3])
def test_chunks_see_what_was_read_before_them(
    device: torch.device, window: int | None, mode: type[AbstractContextManager[object]]
) -> None:
    random = torch.Generator().manual_seed(0)
    whole = [
        [torch.randn(heads, n, D, generator=random).to(device) for heads in (H, K, K)] for n in LENGTHS
    ]  # q, k, v of each sequence
    cache = torch.full((1, 2, 8, K, PAGE, D), float("nan"), device=device)
    read: list[list[Tensor]] = [[], []]
    # The first pass reads both from the start; the second goes on with both, in the other's middle of a page.
    for first, stop in (((0, 0), (5, 4)), ((5, 4), (13, 7)), ((13,), (14,))):
        rows = [[x[:, a:b] for x in qkv] for qkv, a, b in zip(whole, first, stop)]
        q, k, v = (torch.cat(parts, dim=1) for parts in zip(*rows))
        at, lengths = np.array(first), np.array(stop) - np.array(first)
        how = ExtendingAttention(cache, PAGES[: len(first)], at, lengths)
        with mode():
            out_NHD = how.attend(0, q, k, v, SCALE, window)
        for own, part in zip(read, out_NHD.split(lengths.tolist())):
            own.append(part)
    for qkv, own in zip(whole, read):
        torch.testing.assert_close(torch.cat(own), _reference(*qkv, window), atol=1e-5, rtol=1e-5)
    assert cache[0, :, 4].isnan().all()  # a page of nobody
    keys = cache[0, 0, [5, 2, 7, 1]].transpose(1, 2).flatten(0, 1)[:14]  # (14, K, D)
    assert torch.equal(keys, whole[0][1].transpose(0, 1))
