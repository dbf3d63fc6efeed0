"""One pass over the last tokens of a few sequences and over what was guessed to follow them.

Each token is a row of its own, as if it were a sequence: it writes its keys and values to the pages of its sequence and
reads those before it. So kernels, sums and random numbers are those of decoding, one token after the other. What wrong
guesses leave in the cache is written over before it is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from whet.kernels import decode_state as slot_state
from whet.kernels.sampling import sample
from whet.model.load import head_of, hidden_states
from whet.model.paged import PagedAttention
from whet.rollout.engines.native.drafting import MOST_GUESSED, MOST_SEQUENCES, accepted
from whet.rollout.engines.native.pages import PAGE
from whet.rollout.engines.native.runner import Drawn
from whet.rollout.engines.native.sequence import Sequence

if TYPE_CHECKING:
    from whet.rollout.engines.native.paged import PagedRunner

_ROWS = MOST_SEQUENCES * (1 + MOST_GUESSED)


class Verifier:
    """Rows of tokens to check, at addresses that do not change, so that a graph can hold a pass."""

    def __init__(self, runner: PagedRunner) -> None:
        device = runner.device
        self._state = torch.zeros(slot_state.FACTS, _ROWS, dtype=torch.int64, device=device)
        self._slots = torch.zeros(_ROWS, dtype=torch.int64, device=device)  # of the sequence that each row belongs to
        self._tokens = torch.zeros(_ROWS, dtype=torch.int64, device=device)
        self._log_probs = torch.zeros(_ROWS, device=device)

    def check(self, runner: PagedRunner, running: list[Sequence], guesses: list[list[int]]) -> Drawn:
        """Draw the tokens behind all rows; return those of each sequence up to its first wrong guess."""
        # 1. Rows of each sequence: its last token, then its guess, as far as it may still write.
        facts: list[tuple[int, ...]] = []
        slots: list[int] = []
        kept = []
        for slot, (sequence, guess) in enumerate(zip(running, guesses)):
            params, written = sequence.request.params, len(sequence.ids)
            kept.append(guess[: min(params.max_tokens - written, runner.window) - 1])
            last = sequence.ids[-1] if written else sequence.request.prompt.ids[-1]
            at = len(sequence.request.prompt.ids) - 1 + written
            for i, token in enumerate([last, *kept[-1]]):
                facts.append((token, at + i, sequence.key, written + i, params.max_tokens, 1, 0, 0))
                slots.append(slot)
        # 2. A power of two of rows; those past the last are not live and write nowhere.
        size = 1 << (len(facts) - 1).bit_length()
        table = np.zeros((slot_state.FACTS + 1, size), dtype=np.int64)
        table[:, : len(facts)] = np.array([(*fact, slot) for fact, slot in zip(facts, slots)]).T
        given = runner.to_device(table)
        self._state[:, :size].copy_(given[:-1])
        self._slots[:size].copy_(given[-1])
        runner.pass_over_rows(self, size, running[0].request.params.temperature)
        # 3. The host waits here.
        tokens, log_probs = self._tokens[:size].tolist(), self._log_probs[:size].tolist()
        drawn, start = Drawn(list(running), [], []), 0
        for guess in kept:
            count = accepted(guess, tokens[start : start + len(guess) + 1])
            drawn.tokens.append(tokens[start : start + count])
            drawn.log_probs.append(log_probs[start : start + count])
            start += len(guess) + 1
        return drawn

    def launch(self, runner: PagedRunner, size: int, temperature: float) -> None:
        """Launch one pass over `size` rows; everything stays on the device."""
        # Block-table rows (size, pages) of the rows' sequences, then as `PagedRunner._one_token`.
        table = runner.block_table.index_select(0, self._slots[:size])
        slots_B, lengths_B, uniforms_B = slot_state.prepare(self._state, table, PAGE, size)
        ids_B, positions_B = self._state[slot_state.TOKEN, :size], self._state[slot_state.POSITION, :size]
        attention = PagedAttention(runner.cache, table, slots_B, lengths_B, runner.shares(size))
        logits_BV = head_of(runner.model).logits(hidden_states(runner.model, ids_B, positions_B, attention))
        tokens_B, log_probs_B = sample(logits_BV, temperature, uniforms_B)
        self._tokens[:size].copy_(tokens_B)
        self._log_probs[:size].copy_(log_probs_B)
