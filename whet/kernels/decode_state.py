"""The bookkeeping of decoding, kept on the device: where each slot stands, and which have ended.

The state is one int64 tensor with a row for each fact and a column for each slot. `prepare` reads it before a forward
pass and `advance` writes the drawn tokens down after it, so that many tokens can be drawn before the host looks.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# Rows of the state.
TOKEN, POSITION, KEY, WRITTEN, LIMIT, LIVE, STOPS, STEP = range(8)
FACTS = 8
_BLOCK = 128

# whet.rollout.uniforms has the same numbers, and says where they come from.
_GAMMA = tl.constexpr(-7046029254386353131)
_MIX1 = tl.constexpr(-4658895280553007687)
_MIX2 = tl.constexpr(-7723592293110705685)


def prepare(state: Tensor, block_table: Tensor, page: int, B: int) -> tuple[Tensor, Tensor, Tensor]:
    """Cache slot (B,) int64, length (B,) int32 and uniform number (B,) float64 of the next token of every slot.

    A slot that has ended writes to slot 0 of the cache, which belongs to nobody, and has length 0.
    """
    slots = torch.empty(B, dtype=torch.int64, device=state.device)
    lengths = torch.empty(B, dtype=torch.int32, device=state.device)
    uniforms = torch.empty(B, dtype=torch.float64, device=state.device)
    grid = (triton.cdiv(B, _BLOCK),)
    _prepare[grid](
        state, state.stride(0), block_table, block_table.stride(0), slots, lengths, uniforms, B, page, BLOCK=_BLOCK
    )
    return slots, lengths, uniforms


def advance(
    state: Tensor, tokens_B: Tensor, log_probs_B: Tensor, ends_V: Tensor, out_tokens: Tensor, out_log_probs: Tensor
) -> None:
    """Give every live slot its token: write it to row STEP of the outputs, move on, and see who has ended.

    `ends_V` is int8 over the vocabulary, not 0 for tokens that end a response: one look, however many those are.
    `out_tokens` is (steps, slots) int32, -1 where a slot had ended before.
    """
    B = len(tokens_B)
    _advance[(triton.cdiv(B, _BLOCK),)](
        state,
        state.stride(0),
        tokens_B,
        log_probs_B,
        ends_V,
        out_tokens,
        out_log_probs,
        out_tokens.stride(0),
        B,
        BLOCK=_BLOCK,
    )


@triton.jit
def _mix(x):
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * _MIX1
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * _MIX2
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


@triton.jit
def _prepare(state, fact, table, table_row, slots, lengths, uniforms, B, page, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = i < B
    live = (tl.load(state + 5 * fact + i, mask=here, other=0) != 0) & here
    position = tl.load(state + 1 * fact + i, mask=live, other=0)
    number = tl.load(table + i.to(tl.int64) * table_row + position // page, mask=live, other=0).to(tl.int64)
    tl.store(slots + i, tl.where(live, number * page + position % page, 0), mask=here)
    tl.store(lengths + i, tl.where(live, position + 1, 0).to(tl.int32), mask=here)
    key = tl.load(state + 2 * fact + i, mask=here, other=0)
    written = tl.load(state + 3 * fact + i, mask=here, other=0)
    bits = _mix(key + (written + 1) * _GAMMA)
    tl.store(uniforms + i, ((bits >> 11) & 0x1FFFFFFFFFFFFF).to(tl.float64) * (1.0 / 9007199254740992.0), mask=here)


@triton.jit
def _advance(
    state,
    fact,
    tokens,
    log_probs,
    ends,
    out_tokens,
    out_log_probs,
    out_row,
    B,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = i < B
    live = (tl.load(state + 5 * fact + i, mask=here, other=0) != 0) & here
    token = tl.load(tokens + i, mask=here, other=0)
    step = tl.load(state + 7 * fact + i, mask=here, other=0)
    tl.store(out_tokens + step * out_row + i, tl.where(live, token, -1).to(tl.int32), mask=here)
    tl.store(out_log_probs + step * out_row + i, tl.load(log_probs + i, mask=here, other=0.0), mask=here)
    tl.store(state + 7 * fact + i, step + 1, mask=here)
    tl.store(state + i, token, mask=live)
    tl.store(state + 1 * fact + i, tl.load(state + 1 * fact + i, mask=live, other=0) + 1, mask=live)
    written = tl.load(state + 3 * fact + i, mask=live, other=0) + 1
    tl.store(state + 3 * fact + i, written, mask=live)
    ended = written >= tl.load(state + 4 * fact + i, mask=live, other=0)
    stops = tl.load(state + 6 * fact + i, mask=live, other=0) != 0
    ended |= stops & (tl.load(ends + token, mask=live, other=0) != 0)
    tl.store(state + 5 * fact + i, tl.where(ended, 0, 1).to(tl.int64), mask=live)
