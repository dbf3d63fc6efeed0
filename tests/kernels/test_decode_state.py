"""The bookkeeping of decoding on the device, against the same in plain Python."""

from __future__ import annotations

import torch

from whet.kernels.decode_state import FACTS, KEY, LIMIT, LIVE, POSITION, STEP, STOPS, TOKEN, WRITTEN, advance, prepare
from whet.rollout.uniforms import stream_keys, uniforms

S, PAGE = 5, 4


def _state(device: torch.device) -> torch.Tensor:
    state = torch.zeros(FACTS, S, dtype=torch.int64, device=device)
    state[KEY] = stream_keys(7, torch.arange(S)).to(device)
    state[POSITION] = torch.tensor([0, 3, 4, 9, 2])
    state[WRITTEN] = torch.tensor([0, 1, 2, 3, 4])
    state[LIMIT] = torch.tensor([9, 2, 9, 9, 9])
    state[LIVE] = torch.tensor([1, 1, 1, 1, 0])
    state[STOPS] = torch.tensor([1, 1, 1, 0, 1])
    return state


def test_prepare_finds_the_slot_of_each_token_and_its_random_number(device: torch.device) -> None:
    state = _state(device)
    table = torch.arange(1, 1 + 3 * S, dtype=torch.int32, device=device).view(S, 3)
    slots, lengths, drawn = prepare(state, table, PAGE, S)
    assert slots.tolist() == [1 * 4, 4 * 4 + 3, 8 * 4, 12 * 4 + 1, 0]
    assert lengths.tolist() == [1, 4, 5, 10, 0]
    assert torch.equal(drawn.cpu(), uniforms(state[KEY].cpu(), state[WRITTEN].cpu()))


def test_advance_ends_slots_at_an_end_token_or_at_their_limit(device: torch.device) -> None:
    state = _state(device)
    tokens = torch.tensor([5, 6, 99, 99, 7], device=device)
    log_probs = torch.tensor([-1.0, -2.0, -3.0, -4.0, -5.0], device=device)
    out = torch.full((2, S), -7, dtype=torch.int32, device=device)
    out_log_probs = torch.zeros(2, S, device=device)
    ends = torch.zeros(100, dtype=torch.int8, device=device)
    ends[98:] = 1
    advance(state, tokens, log_probs, ends, out, out_log_probs)
    assert out[0].tolist() == [5, 6, 99, 99, -1]
    assert out_log_probs[0, :4].tolist() == [-1.0, -2.0, -3.0, -4.0]
    assert state[LIVE].tolist() == [1, 0, 0, 1, 0], "the limit, an end token, one that ignores it, one long ended"
    assert state[WRITTEN].tolist() == [1, 2, 3, 4, 4]
    assert state[POSITION].tolist() == [1, 4, 5, 10, 2]
    assert state[TOKEN].tolist() == [5, 6, 99, 99, 0]
    advance(state, tokens, log_probs, ends, out, out_log_probs)
    assert out[1].tolist() == [5, -1, -1, 99, -1]
    assert state[STEP].tolist() == [2] * S
