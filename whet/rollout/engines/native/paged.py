"""Decoding over a paged cache: many tokens for every running sequence before the host looks.

The host hands the device what to do next before it has read what the device did last: while it appends the tokens of
one window, checks stop strings and refills slots, the device is already at the next. End tokens and lengths are seen by
the device itself. What was drawn past an end that only the host can see is dropped.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from whet.errors import UserError
from whet.kernels import decode_state as slot_state
from whet.kernels.log_probs import row_statistics
from whet.kernels.paged_attention import choose_splits
from whet.kernels.sampling import sample
from whet.model.attention import packed_attention_for
from whet.model.fused import is_exact
from whet.model.load import head_of, hidden_states
from whet.model.paged import PagedAttention, RememberingAttention
from whet.rollout.engines.native.pages import PAGE, PagePool, PromptPages, prompt_pages, sample_pages
from whet.rollout.engines.native.runner import Drawn, lay_prompts
from whet.rollout.engines.native.sampler import SamplingRows, never_sampled, sample_rows
from whet.rollout.engines.native.scheduler import Request, Sequence

LOOKAHEAD = 8  # tokens between two looks of the host


class How(NamedTuple):
    """How the tokens of a window are sampled."""

    temperature: float | None  # of all slots; None where they differ
    filtered: bool  # whether top-k, top-p or min-p cut any slot's distribution


class PagedRunner:
    """Prefills prompts into pages and decodes windows of tokens; `GraphRunner` replays what this class launches."""

    reports_tops = False  # a window keeps the log-probs of what was drawn and nothing else
    keeps = False  # prefill reads no pages: a continued sample is read whole

    def __init__(
        self, model: PreTrainedModel, max_num_seqs: int, end_ids: frozenset[int], max_model_len: int | None = None
    ) -> None:
        self.model, self.device = model, model.device
        self.vocab_size = cast(nn.Embedding, model.get_input_embeddings()).num_embeddings
        self._slots, self._longest = max_num_seqs, max_model_len or 0
        config = model.config.get_text_config()
        self._layers = config.num_hidden_layers
        self._kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        self._head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self._end_ids = torch.tensor(sorted(end_ids), dtype=torch.int64, device=self.device)
        self._state = torch.zeros(slot_state.FACTS, max_num_seqs, dtype=torch.int64, device=self.device)
        self._filters = SamplingRows.neutral(max_num_seqs, self.device)
        # Of positions from places in the cache: of the prompt's last token, and of what follows. 0 without images.
        self._offsets = torch.zeros(2, max_num_seqs, dtype=torch.int64, device=self.device)
        self._never = never_sampled(model.config, self.device)
        self._out_tokens = torch.zeros(LOOKAHEAD, max_num_seqs, dtype=torch.int32, device=self.device)
        self._out_log_probs = torch.zeros(LOOKAHEAD, max_num_seqs, device=self.device)
        cuda = self.device.type == "cuda"
        self._processors = torch.cuda.get_device_properties(self.device).multi_processor_count if cuda else 1
        self._pool = PagePool(1)
        self._cache = torch.empty(0)
        self._block_table = torch.empty(0)
        self._flight: _Flight | None = None

    # Pages

    def reserve(self, request: Request) -> bool:
        """Set pages aside for a prompt and the first of its samples; False while there are not enough."""
        if not self._make_room(request):
            return False
        prompt, max_tokens = request.prompt, request.params.max_tokens
        need = prompt_pages(prompt)
        pages = self._pool.take(need + sample_pages(prompt, max_tokens))
        if pages is None:
            if self._pool.idle:
                raise UserError(
                    f"{prompt.uid}: {len(prompt.ids)} prompt tokens and {max_tokens} new ones do not fit into the "
                    "key-value cache: raise worker.rollout.gpu_memory_utilization or lower data.max_response_length"
                )
            return False
        partly = (len(prompt.ids) - 1) % PAGE != 0
        request.prefilled = PromptPages(pages[:need], pages[need:], pages[need - 1] if partly else None)
        return True

    def fits(self, sequence: Sequence) -> bool:
        """Whether there are pages for a sequence whose prompt is in the cache; they are its own from now on."""
        held = cast(PromptPages, sequence.request.prefilled)
        if not held.own:
            pages = self._pool.take(sample_pages(sequence.request.prompt, sequence.request.params.max_tokens))
            if pages is None:
                return False
            held.own = pages
        sequence.pages, held.own = held.own, []
        return True

    def finished(self, sequence: Sequence) -> None:
        """Take back a sequence's pages and, after the last of its request, the prompt's."""
        # A window that is under way may still write there. The next owner's writes are queued behind it.
        self._pool.give(sequence.pages)
        sequence.pages = []
        request = sequence.request
        if request.unfinished == 0 and isinstance(request.prefilled, PromptPages):
            self._pool.give(request.prefilled.pages + request.prefilled.own)
            request.prefilled = None

    def _make_room(self, request: Request) -> bool:
        """See that the cache exists and that its rows are long enough: it is made anew once nobody uses it."""
        longest = len(request.prompt.ids) + request.params.max_tokens
        if longest <= self._longest and self._pool.pages > 1:
            return True
        if not self._pool.idle:
            return False
        self._longest = max(longest, self._longest)
        row, n = -(-self._longest // PAGE), request.params.n
        # A response for each slot, with a page before and behind it, and a prompt for every n of them. Where that is
        # not enough, sequences wait.
        response = -(-request.params.max_tokens // PAGE) + 2
        pages = self._slots * response + (-(-self._slots // n) + 1) * (row - response + 3)
        self._pool = PagePool(1 + min(max(pages, row + 3), self._most_pages()))
        self._block_table = torch.zeros(self._slots, row, dtype=torch.int32, device=self.device)
        self._cache = self._new_cache(self._pool.pages)
        return True

    def _cache_shape(self, pages: int) -> tuple[int, ...]:
        return (self._layers, 2, pages, self._kv_heads, PAGE, self._head_dim)

    def _new_cache(self, pages: int) -> Tensor:
        return torch.zeros(self._cache_shape(pages), dtype=self.model.dtype, device=self.device)

    def _most_pages(self) -> int:
        return 1 << 20

    # Prompts

    def prefill(self, requests: list[Request]) -> None:
        """Keys and values of each prompt but for its last token, all prompts in one packed row."""
        requests = [r for r in requests if len(r.prompt.ids) > 1]
        if not requests:
            return
        row = lay_prompts(self.model, requests, self.device, but_last=True)
        segments = np.stack([row.starts, row.lengths, *np.zeros((2, len(requests)), dtype=np.int64)], axis=1)
        pages = [np.array(cast(PromptPages, r.prefilled).pages) for r in requests]
        places = [np.arange(n) for n in row.lengths]
        slots = np.concatenate([p[at // PAGE] * PAGE + at % PAGE for p, at in zip(pages, places)])
        rows = self._to_device(np.stack([row.ids_N, slots, *np.atleast_2d(row.positions)]))
        positions = rows[2:].view(row.positions.shape)
        how = RememberingAttention(packed_attention_for(segments, self.device), self._cache, rows[1])
        hidden_states(self.model, rows[0], positions, how, row.media)

    def admit(self, admitted: list[tuple[int, Sequence]]) -> list[Drawn]:
        """Give sequences their slots; their first tokens come with the next window."""
        count = len(admitted)
        rows = np.zeros((count, self._block_table.shape[1]), dtype=np.int64)
        facts = np.zeros((slot_state.FACTS, count), dtype=np.int64)
        copies: list[tuple[int, int]] = []
        for i, (_, sequence) in enumerate(admitted):
            prompt, params = sequence.request.prompt.ids, sequence.request.params
            held = cast(PromptPages, sequence.request.prefilled)
            pages = held.shared + sequence.pages
            rows[i, : len(pages)] = pages
            if held.tail is not None:
                copies.append((held.tail, sequence.pages[0]))
            # The last prompt token is read by decoding, which draws the first token from it.
            facts[:, i] = (prompt[-1], len(prompt) - 1, sequence.key, 0, params.max_tokens, 1, not params.ignore_eos, 0)
        slots = self._to_device(np.array([slot for slot, _ in admitted]))
        offsets = np.array([(s.request.last_offset, s.request.offset) for _, s in admitted]).T
        self._offsets.index_copy_(1, slots, self._to_device(offsets))
        self._state.index_copy_(1, slots, self._to_device(facts))
        self._block_table.index_copy_(0, slots, self._to_device(rows).to(torch.int32))
        self._filters.put(slots, [s.request.params for _, s in admitted])
        if copies:
            tails, own = self._to_device(np.array(copies).T)
            self._cache[:, :, own] = self._cache[:, :, tails]
        return []

    def rearrange(self, moves: list[tuple[int, int, Sequence]], running: int) -> None:
        """Sequences moved from slot to slot; from `running` on, slots are empty."""
        if moves:
            sources, targets = self._to_device(np.array([move[:2] for move in moves]).T)
            self._state.index_copy_(1, targets, self._state.index_select(1, sources))
            self._offsets.index_copy_(1, targets, self._offsets.index_select(1, sources))
            self._block_table.index_copy_(0, targets, self._block_table.index_select(0, sources))
            self._filters.move(sources, targets)
        self._state[slot_state.LIVE, running:] = 0

    def settle(self) -> list[Drawn]:
        """Read the window that is under way."""
        flight, self._flight = self._flight, None
        return [] if flight is None else [flight.read()]

    def keep(self, slot: int, sequence: Sequence) -> None:
        """Keep nothing."""

    # Tokens

    def decode(self, running: list[Sequence]) -> list[Drawn]:
        """Begin the next window of tokens, and return what the one before it drew, if there was one."""
        flight, self._flight = self._flight, None
        if any(s.ahead + len(s.ids) < s.request.params.max_tokens for s in running):
            self._flight = self._launch(running)
        return [] if flight is None else [flight.read()]

    def _launch(self, running: list[Sequence]) -> _Flight:
        B = bucket(len(running), self._slots)
        params = [s.request.params for s in running]
        alike = all(p.temperature == params[0].temperature for p in params)
        how = How(params[0].temperature if alike else None, any(p.filters for p in params))
        self._state[slot_state.STEP] = 0
        self._window(B, how)
        return _Flight(list(running), self._out_tokens, self._out_log_probs)

    def _window(self, B: int, how: How) -> None:
        """`LOOKAHEAD` tokens for the first B slots."""
        for _ in range(LOOKAHEAD):
            self._one_token(B, how)

    def _one_token(self, B: int, how: How) -> None:
        """Forward, sample, write down, move on; everything stays on the device."""
        table = self._block_table
        # Cut into shares, a sequence's sums are added in another order: not where bits must not depend on the batch.
        splits = 1 if is_exact(self.model) else choose_splits(B, self._kv_heads, self._processors, self._longest)
        slots_B, lengths_B, uniforms_B = slot_state.prepare(self._state, table, PAGE, B)
        ids_B, positions_B = self._state[slot_state.TOKEN, :B], self._state[slot_state.POSITION, :B]
        if self._never is not None:  # a model that reads images
            last, behind = self._offsets[:, :B]
            positions_B = positions_B + torch.where(self._state[slot_state.WRITTEN, :B] == 0, last, behind)
        attention = PagedAttention(self._cache, table, slots_B, lengths_B, splits)
        logits_BV = head_of(self.model).logits(hidden_states(self.model, ids_B, positions_B, attention))
        never = self._never
        if how.temperature is not None and not how.filtered:
            possible_BV = logits_BV if never is None else logits_BV.index_fill(1, never, float("-inf"))
            tokens_B, log_probs_B = sample(possible_BV, how.temperature, uniforms_B)
        else:
            tokens_B, log_probs_B = sample_rows(logits_BV, self._filters.first(B), uniforms_B, never=never)
        if how.temperature is not None and (how.filtered or never is not None):  # as the learner computes it
            log_probs_B, _, _ = row_statistics(logits_BV, tokens_B, how.temperature or 1.0, want_entropy=False)
        slot_state.advance(self._state, tokens_B, log_probs_B, self._end_ids, self._out_tokens, self._out_log_probs)

    def release(self) -> None:
        """Nothing is running: let go of what was under way."""
        self._flight = None

    def reset(self) -> None:
        """Forget everything that was being decoded, after an error."""
        self._flight = None
        self._pool = PagePool(self._pool.pages)
        self._state.zero_()

    def _to_device(self, array: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        if self.device.type != "cuda":
            return tensor.to(self.device)
        return tensor.pin_memory().to(self.device, non_blocking=True)


class _Flight:
    """A window of tokens on its way from the device."""

    def __init__(self, sequences: list[Sequence], tokens: Tensor, log_probs: Tensor) -> None:
        self._sequences, B = sequences, len(sequences)
        for sequence in sequences:
            sequence.ahead += LOOKAHEAD
        cuda = tokens.device.type == "cuda"
        self._tokens = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=cuda)[:, :B]
        self._log_probs = torch.empty(log_probs.shape, dtype=log_probs.dtype, pin_memory=cuda)[:, :B]
        self._tokens.copy_(tokens[:, :B], non_blocking=True)
        self._log_probs.copy_(log_probs[:, :B], non_blocking=True)
        self._landed = torch.cuda.Event() if cuda else None
        if self._landed is not None:
            self._landed.record()

    def read(self) -> Drawn:
        """Wait for it, and give each sequence what it drew before it ended."""
        if self._landed is not None:
            self._landed.synchronize()
        for sequence in self._sequences:
            sequence.ahead -= LOOKAHEAD
        tokens, log_probs = self._tokens.numpy().T, self._log_probs.numpy().T
        counts = (tokens >= 0).sum(axis=1).tolist()
        return Drawn(
            self._sequences,
            [row[:n] for row, n in zip(tokens.tolist(), counts)],
            [row[:n] for row, n in zip(log_probs.tolist(), counts)],
        )


def bucket(B: int, most: int) -> int:
    """The batch size that B is rounded up to: powers of two up to 64, multiples of 64 beyond."""
    size = 1 << (B - 1).bit_length() if B <= 64 else -(-B // 64) * 64
    return min(size, most)
