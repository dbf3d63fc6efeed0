"""Decode attention over pages against a plain softmax in fp64."""

from __future__ import annotations

import math

import pytest
import torch
from kernels.conftest import DEVICE
from torch import Tensor

from whet.kernels.paged_attention import paged_attention
from whet.kernels.paged_attention_tiles import UNCUT, Shares, choose_shares

LENGTHS = [0, 1, 130, 64]


def _cache(lengths: list[int], K: int, D: int, page: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Keys, values and a block table of scattered pages; the same tokens whatever the page size."""
    g = torch.Generator().manual_seed(3)
    most = max(lengths)
    tokens = torch.randn(2, len(lengths), most, K, D, generator=g).to(dtype)
    each = math.ceil(most / page)
    order = torch.randperm(len(lengths) * each, generator=g)
    table = order.view(len(lengths), each).int()
    cache = torch.full((2, len(order), K, page, D), float("nan"), dtype=dtype)
    for i, length in enumerate(lengths):
        for n in range(length):
            cache[:, table[i, n // page], :, n % page] = tokens[:, i, n]
        table[i, math.ceil(length / page) :] = 2**30  # never to be read
    return cache[0].to(DEVICE), cache[1].to(DEVICE), table.to(DEVICE)


def _queries(B: int, H: int, D: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(B, H, D, generator=torch.Generator().manual_seed(4)).to(DEVICE, dtype)


def _plain(
    q_BHD: Tensor, keys: Tensor, values: Tensor, table: Tensor, lengths: list[int], scale: float, window: int | None
) -> tuple[Tensor, Tensor]:
    B, H, D = q_BHD.shape
    K, page = keys.shape[1:3]
    out = torch.zeros(B, H, D, dtype=torch.float64, device=DEVICE)
    lse = torch.full((B, H), float("-inf"), dtype=torch.float64, device=DEVICE)
    for i, length in enumerate(lengths):
        positions = torch.arange(max(0, length - (window or length)), length, device=DEVICE)
        if length:
            k_NKD, v_NKD = (x[table[i, positions // page].long(), :, positions % page].double() for x in (keys, values))
            k_NHD, v_NHD = (x.repeat_interleave(H // K, dim=1) for x in (k_NKD, v_NKD))
            score_HN = torch.einsum("hd,nhd->hn", q_BHD[i].double(), k_NHD) * scale
            out[i] = torch.einsum("hn,nhd->hd", score_HN.softmax(-1), v_NHD)
            lse[i] = score_HN.logsumexp(-1)
    return out, lse


@pytest.mark.parametrize("shares", [UNCUT, Shares(64, 1), Shares(64, 3)])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "D", "page", "window"),
    [(2, 2, 16, 16, None), (6, 2, 64, 16, None), (3, 1, 16, 1, 20), (4, 2, 32, 16, 70), (18, 1, 16, 64, 1)],
)
def test_against_softmax(heads: int, kv_heads: int, D: int, page: int, window: int | None, shares: Shares) -> None:
    keys, values, table = _cache(LENGTHS, kv_heads, D, page, torch.float32)
    q = _queries(len(LENGTHS), heads, D, torch.float32)
    lengths = torch.tensor(LENGTHS, dtype=torch.int32, device=DEVICE)
    out, lse = paged_attention(q, keys, values, table, None, lengths, D**-0.5, window, shares, return_lse=True)
    expected, expected_lse = _plain(q, keys, values, table, LENGTHS, D**-0.5, window)
    torch.testing.assert_close(out.double(), expected, atol=2e-6, rtol=2e-6)
    torch.testing.assert_close(lse.double(), expected_lse, atol=2e-6, rtol=2e-6)
    assert torch.equal(out, paged_attention(q, keys, values, table, None, lengths, D**-0.5, window, shares))


def test_half_precision() -> None:
    dtype = torch.bfloat16 if DEVICE == "cuda" else torch.float16  # the interpreter has no bf16 products
    keys, values, table = _cache(LENGTHS, 2, 32, 16, dtype)
    q = _queries(len(LENGTHS), 6, 32, dtype)
    lengths = torch.tensor(LENGTHS, device=DEVICE)  # int64 is as good
    out = paged_attention(q, keys, values, table, None, lengths, 0.2, None)
    assert out.dtype == dtype
    expected, _ = _plain(q, keys, values, table, LENGTHS, 0.2, None)
    torch.testing.assert_close(out.double(), expected, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("shares", [UNCUT, Shares(64, 3)])
@pytest.mark.parametrize("window", [None, 30])
def test_page_size_does_not_change_a_bit(window: int | None, shares: Shares) -> None:
    results = []
    for page in (1, 2, 16):
        keys, values, table = _cache(LENGTHS, 1, 16, page, torch.float32)
        lengths = torch.tensor(LENGTHS, device=DEVICE)
        q = _queries(len(LENGTHS), 3, 16, torch.float32)
        results.append(paged_attention(q, keys, values, table, None, lengths, 0.25, window, shares))
    for other in results[1:]:
        assert torch.equal(other, results[0])


def test_queries_may_share_rows_and_pages() -> None:
    """Rows picked by number: several queries of one sequence, each seeing as far as its length says."""
    keys, values, table = _cache([90, 40], 1, 16, 16, torch.float32)
    table[1, :2] = table[0, :2]  # the second begins with the pages of the first
    rows = torch.tensor([1, 0, 0, 1], device=DEVICE)
    lengths = [33, 90, 12, 40]
    q = _queries(4, 3, 16, torch.float32)
    out = paged_attention(q, keys, values, table, rows, torch.tensor(lengths, device=DEVICE), 0.25, None)
    expected, _ = _plain(q, keys, values, table[rows], lengths, 0.25, None)
    torch.testing.assert_close(out.double(), expected, atol=2e-6, rtol=2e-6)
    alone = paged_attention(q[1:2], keys, values, table, rows[1:2], torch.tensor([90], device=DEVICE), 0.25, None)
    assert torch.equal(alone[0], out[1])


def test_views_of_one_packed_buffer() -> None:
    """Pages of one token: the rows of a packed (N, (H + 2K)·D) projection, read where they lie."""
    N, H, K, D = 40, 4, 2, 16
    qkv = _queries(N, H + 2 * K, D, torch.float32)
    q, keys, values = qkv[:, :H], qkv[:, H : H + K].unsqueeze(2), qkv[:, H + K :].unsqueeze(2)
    table = torch.arange(N, dtype=torch.int32, device=DEVICE)[None]
    rows = torch.zeros(N, dtype=torch.int32, device=DEVICE)
    lengths = torch.arange(1, N + 1, device=DEVICE)
    out = paged_attention(q, keys, values, table, rows, lengths, 0.25, None)
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(x.double().transpose(0, 1) for x in (q, keys.squeeze(2), values.squeeze(2))),
        is_causal=True,
        scale=0.25,
        enable_gqa=True,
    )
    torch.testing.assert_close(out.double(), expected.transpose(0, 1), atol=2e-6, rtol=2e-6)


def test_refusals() -> None:
    keys = torch.zeros(2, 1, 16, 24, device=DEVICE)
    table, lengths = torch.zeros(1, 2, dtype=torch.int32, device=DEVICE), torch.ones(1, device=DEVICE)
    with pytest.raises(ValueError, match="powers of two"):
        paged_attention(torch.zeros(1, 2, 24, device=DEVICE), keys, keys, table, None, lengths, 1.0, None)
    keys = torch.zeros(2, 3, 16, 16, device=DEVICE)
    with pytest.raises(ValueError, match="queries"):
        paged_attention(torch.zeros(1, 4, 16, device=DEVICE), keys, keys, table, None, lengths, 1.0, None)


@pytest.mark.parametrize("window", [None, 70])
def test_programs_for_shares_do_not_change_a_bit(window: int | None) -> None:
    keys, values, table = _cache([0, 1, 64, 150], 1, 16, 16, torch.float32)
    q, lengths = _queries(4, 3, 16, torch.float32), torch.tensor([0, 1, 64, 150], device=DEVICE)
    given = (q, keys, values, table, None, lengths, 0.25, window)
    alone, alone_lse = paged_attention(*given, Shares(64, 1), return_lse=True)
    for at_once in (3, 5):
        out, lse = paged_attention(*given, Shares(64, at_once), return_lse=True)
        assert torch.equal(out, alone)
        assert torch.equal(lse, alone_lse)
    # Up to one share nothing is added: the bits are those of keys that are not cut.
    assert torch.equal(paged_attention(*given)[:3], alone[:3])


def test_choose_shares() -> None:
    half = torch.bfloat16
    assert choose_shares(512, 8, 132, 128, 250, half) == UNCUT  # no longer than a share
    assert choose_shares(512, 8, 132, 128, 2048, half) == Shares(256, 1)  # enough programs
    assert choose_shares(8, 8, 132, 128, 2048, half) == Shares(256, 8)
    assert choose_shares(32, 8, 132, 128, 2048, torch.float8_e4m3fn) == Shares(256, 8)  # of one warp
    assert choose_shares(16, 8, 132, 64, 2048, half) == UNCUT  # as training adds
    assert choose_shares(16, 8, 132, 64, 4100, half) == Shares(2048, 3)
    assert choose_shares(512, 8, 132, 64, 4100, half) == UNCUT
    assert choose_shares(1, 8, 132, 128, 131_072, half) == Shares(2048, 64)


@pytest.mark.skipif(DEVICE == "cpu", reason="triton's interpreter has 8-bit floats of its own kind")
def test_a_cache_in_8_bits_is_read_as_the_numbers_it_holds() -> None:
    generator = torch.Generator().manual_seed(4)
    wide = torch.randn(2, 5, 2, 16, 16, generator=generator).to(DEVICE)
    narrow = wide.to(torch.float8_e4m3fn)
    q = torch.randn(3, 4, 16, generator=generator).to(DEVICE)
    table = torch.tensor([[1, 2], [3, 4], [2, 1]], dtype=torch.int32, device=DEVICE)
    lengths = torch.tensor([20, 7, 0], dtype=torch.int32, device=DEVICE)
    given = (table, None, lengths, 0.25, None)
    for shares in (UNCUT, Shares(64, 1), Shares(64, 2)):
        found = paged_attention(q, *narrow, *given, shares)
        torch.testing.assert_close(found, paged_attention(q, *narrow.float(), *given, shares), rtol=5e-3, atol=5e-3)
