"""Decoding over a paged cache: many tokens for every running sequence before the host looks.

The host hands the device what to do next before it has read what the device did last: while it appends the tokens of
one window, checks stop strings and refills slots, the device is already at the next. End tokens and lengths are seen by
the device itself. What was drawn past an end that only the host can see is dropped.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from whet.kernels import decode_state as slot_state
from whet.kernels.log_probs import row_statistics
from whet.kernels.paged_attention_tiles import UNCUT, Shares, choose_shares
from whet.kernels.sampling import sample
from whet.kernels.upload import upload
from whet.model.fused import is_exact
from whet.model.load import head_of, hidden_states
from whet.model.paged import PagedAttention, bits
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.allocator import PageAllocator
from whet.rollout.engines.native.drafting import MOST_SEQUENCES, Speculation
from whet.rollout.engines.native.flight import LOOKAHEAD, Flight
from whet.rollout.engines.native.pages import PAGE, KeptPages, PromptPages
from whet.rollout.engines.native.reading import Places, places_of, prefill_attention
from whet.rollout.engines.native.routes import WindowRecord
from whet.rollout.engines.native.runner import Drawn
from whet.rollout.engines.native.sampler import never_sampled
from whet.rollout.engines.native.sampling_rows import SamplingRows, sample_rows
from whet.rollout.engines.native.sequence import Chunk, ChunkRow, Kept, Sequence, lay_chunks
from whet.rollout.engines.native.slots import How, bucket, facts_of, how_of
from whet.rollout.engines.native.storage import PageStorage
from whet.rollout.engines.native.tops import WindowTops
from whet.rollout.engines.native.verifying import Verifier
from whet.types import Prompt


class PagedRunner:
    """Prefills prompts into pages and decodes windows of tokens; `GraphRunner` replays what this class launches."""

    keeps, most_kept = True, 64  # samples for each slot; their pages are taken where others need them

    def __init__(
        self,
        model: PreTrainedModel,
        max_num_seqs: int,
        end_ids: frozenset[int],
        max_model_len: int | None = None,
        storage: PageStorage | None = None,
        speculate: bool = False,
        record_routing: bool = False,
    ) -> None:
        self.model, self.device = model, model.device
        self.vocab_size = cast(nn.Embedding, model.get_input_embeddings()).num_embeddings
        self._slots, self._longest = max_num_seqs, max_model_len or 0
        self._storage = storage or PageStorage(model)
        self._pages = PageAllocator(self._storage, LOOKAHEAD)
        ends = [token for token in end_ids if token < self.vocab_size]
        self._ends_V = torch.zeros(self.vocab_size, dtype=torch.int8)
        self._ends_V[ends] = 1
        self._ends_V = self._ends_V.to(self.device)
        self._state = torch.zeros(slot_state.FACTS, max_num_seqs, dtype=torch.int64, device=self.device)
        self._filters = SamplingRows.neutral(max_num_seqs, self.device)
        # Of positions from places in the cache: of the prompt's last token, and of what follows. 0 without images.
        self._offsets = torch.zeros(2, max_num_seqs, dtype=torch.int64, device=self.device)
        self._never = never_sampled(model.config, self.device)
        self._out_tokens = torch.zeros(LOOKAHEAD, max_num_seqs, dtype=torch.int32, device=self.device)
        self._out_log_probs = torch.zeros(LOOKAHEAD, max_num_seqs, device=self.device)
        self._tops = WindowTops(max_num_seqs, self.device)
        self._routes = WindowRecord(model, max_num_seqs, self.device) if record_routing else None
        cuda = self.device.type == "cuda"
        self._processors = torch.cuda.get_device_properties(self.device).multi_processor_count if cuda else 1
        self.block_table = self._new_table()
        self._flight: Flight | None = None
        self._speculation = Speculation() if speculate and self._never is None else None
        self._verifier: Verifier | None = None
        self.window = LOOKAHEAD  # tokens for which a running sequence has pages
        self._behind = False  # the host has drawn tokens that `_state` does not know of

    @property
    def cache(self) -> Tensor:
        """Keys and values, (layers, 2, pages, kv heads, page, head dim)."""
        return self._storage.data

    # Pages

    def check(self, prompt: Prompt, params: SamplingParams) -> None:
        """Refuse a request of which not even one sample fits into the whole cache."""
        self._pages.check(prompt, params)

    def reserve(self, sequence: Sequence) -> bool:
        """Take pages for a waiting sequence's prompt, the tokens it has and its first window."""
        longest = len(sequence.request.prompt.ids) + sequence.request.params.max_tokens
        if longest > self._longest:
            self._widen(longest)
        return self._pages.reserve(sequence)

    def grow(self, running: list[Sequence], spare: bool = False) -> bool:
        """Take pages for the next window of all running sequences, and list them in the block table."""
        entries = self._pages.grow(running, len(running) if spare and len(running) > 1 else 0)
        if entries:
            slots, columns, pages = self.to_device(np.array(entries).T)
            self.block_table.index_put_((slots, columns), pages.to(torch.int32))
        return entries is not None

    def evict(self, sequence: Sequence) -> bool:
        """Take back the pages of a sequence that does not run, and those of a prompt that nobody else uses."""
        return self._pages.evict(sequence)

    def finished(self, sequence: Sequence) -> None:
        """Take back a sequence's pages and, after the last of its request, the prompt's."""
        self._pages.finished(sequence)

    def occupancy(self) -> tuple[int, int]:
        """Pages in use, and pages that the cache has now."""
        pool = self._pages.pool
        return pool.pages - 1 - pool.free, pool.pages - 1

    def _widen(self, longest: int) -> None:
        """Make block-table rows long enough for a longer sequence, keeping what they list."""
        before, self._longest = self.block_table, longest
        self.block_table = self._new_table()
        self.block_table[:, : before.shape[1]] = before

    def _new_table(self) -> Tensor:
        """(slots, pages of the longest sequence)"""
        return torch.zeros(self._slots, -(-self._longest // PAGE), dtype=torch.int32, device=self.device)

    # Prompts

    def prefill(self, chunks: list[Chunk]) -> None:
        """Compute keys and values of chunks of prompts and of preempted responses, all in one packed row."""
        # 1. A response is written behind its own copy of the page that its prompt fills partly.
        begun = [reading.sequence for reading, _ in chunks if reading.sequence is not None]
        self._copy_tails([s for s in begun if s.reading is not None and s.reading.at == len(s.request.prompt.ids) - 1])
        # 2. One pass, which leaves keys and values in the cache; nobody asks for logits.
        row, places = lay_chunks(self.model, chunks, self.device), places_of(chunks)
        if not self._read_short(row, places):
            self._read(chunks, row, places)
        for reading, stop in chunks:
            reading.advance(stop)

    def _read(self, chunks: list[Chunk], row: ChunkRow, places: Places) -> None:
        """Read a row, launching kernel after kernel."""
        # Tokens and positions (N,) of the row, or (3, N).
        rows = self.to_device(np.stack([row.ids_N, *np.atleast_2d(row.positions)]))
        record = None if self._routes is None else self._routes.reading(len(row.ids_N))
        positions, how = rows[1:].view(row.positions.shape), prefill_attention(self._storage.data, places, row)
        hidden_states(self.model, rows[0], positions, how, row.media, record)
        if record is not None:
            record.to_chunks(chunks)

    def _read_short(self, row: ChunkRow, places: Places) -> bool:
        """Read a short row by a pass of fixed size; False where there is none for it."""
        return False

    def _copy_tails(self, sequences: list[Sequence]) -> None:
        """Give sequences their own copies of the pages that their prompts fill partly."""
        held = [cast(PromptPages, s.request.prefilled) for s in sequences]
        copies = [(h.tail, s.pages[0]) for h, s in zip(held, sequences) if h.tail is not None]
        if copies:
            tails, own = self.to_device(np.array(copies).T)
            cache = bits(self._storage.data)
            cache[:, :, own] = cache[:, :, tails]

    def admit(self, admitted: list[tuple[int, Sequence]]) -> list[Drawn]:
        """Give sequences their slots; their first tokens come with the next window."""
        count = len(admitted)
        rows = np.zeros((count, self.block_table.shape[1]), dtype=np.int64)
        for i, (_, sequence) in enumerate(admitted):
            # 1. Block-table row: the prompt's full pages, then its own.
            pages = cast(PromptPages, sequence.request.prefilled).shared + sequence.pages
            rows[i, : len(pages)] = pages
        slots = self.to_device(np.array([slot for slot, _ in admitted]))
        offsets = np.array([(s.request.last_offset, s.request.offset) for _, s in admitted]).T
        self._offsets.index_copy_(1, slots, self.to_device(offsets))
        # 2. The last token there is, of the prompt or of what was written before a preemption, is read by decoding,
        # which draws the next from it.
        self._state.index_copy_(1, slots, self.to_device(facts_of([s for _, s in admitted])))
        self.block_table.index_copy_(0, slots, self.to_device(rows).to(torch.int32))
        self._filters.put(slots, [s.request.params for _, s in admitted])
        # 3. Where a response was read again, its copy of the prompt's last page was made before.
        self._copy_tails([s for _, s in admitted if not s.ids])
        return []

    def rearrange(self, moves: list[tuple[int, int, Sequence]], running: int) -> None:
        """Sequences moved from slot to slot; from `running` on, slots are empty."""
        if moves:
            sources, targets = self.to_device(np.array([move[:2] for move in moves]).T)
            self._state.index_copy_(1, targets, self._state.index_select(1, sources))
            self._offsets.index_copy_(1, targets, self._offsets.index_select(1, sources))
            self.block_table.index_copy_(0, targets, self.block_table.index_select(0, sources))
            self._filters.move(sources, targets)
        self._state[slot_state.LIVE, running:] = 0

    def settle(self) -> list[Drawn]:
        """Read the window that is under way."""
        flight, self._flight = self._flight, None
        return [] if flight is None else [flight.read()]

    def keep(self, slot: int, sequence: Sequence) -> KeptPages | None:
        """Hold on to a sequence's pages."""
        return self._pages.keep(sequence)

    def trim(self, kept: Kept | KeptPages, tokens: int) -> KeptPages:
        """Give back the pages behind the first tokens of what was kept."""
        return self._pages.trim(cast(KeptPages, kept), tokens)

    # Tokens

    def decode(self, running: list[Sequence]) -> list[Drawn]:
        """Begin the next window of tokens, and return what the one before it drew, if there was one."""
        if self._speculation is not None and (checked := self._check_guesses(self._speculation, running)) is not None:
            return checked
        flight, self._flight = self._flight, None
        if any(s.ahead + len(s.ids) < s.request.params.max_tokens for s in running):
            self._flight = self._launch(running)
        return [] if flight is None else [flight.read()]

    def _check_guesses(self, speculation: Speculation, running: list[Sequence]) -> list[Drawn] | None:
        """Draw several tokens of each of the last few sequences in one pass; None where that cannot be or is slow."""
        how = how_of(running)
        if len(running) > MOST_SEQUENCES or how.temperature is None or how.filtered or how.tops:
            speculation.forget()
            return None
        if (guesses := speculation.guesses(running)) is None:
            return None
        if self._flight is not None:  # guesses follow the last token, which the host must know
            return self.settle()
        self._verifier = self._verifier or Verifier(self)
        self._behind = True
        return [self._verifier.check(self, running, guesses)]

    def pass_over_rows(self, verifier: Verifier, size: int, temperature: float) -> None:
        """Run a verifier's pass."""
        verifier.launch(self, size, temperature)

    def _launch(self, running: list[Sequence]) -> Flight:
        B, how = bucket(len(running), self._slots), how_of(running)
        if self._behind:
            self._state[:, : len(running)] = self.to_device(facts_of(running))
            self._behind = False
        self._state[slot_state.STEP] = 0
        self._window(B, how)
        routes = None if self._routes is None else self._routes.window
        return Flight(list(running), self._out_tokens, self._out_log_probs, routes, self._tops.window(how.tops))

    def _window(self, B: int, how: How) -> None:
        """`LOOKAHEAD` tokens for the first B slots."""
        for _ in range(LOOKAHEAD):
            self._one_token(B, how)

    def _one_token(self, B: int, how: How) -> None:
        """Draw the next token of the first B slots; everything stays on the device, so that a graph can hold it."""
        table, never = self.block_table, self._never
        # 1. Of each slot: where its next keys and values go, how many tokens it then has, and its random number; (B,).
        slots_B, lengths_B, uniforms_B = slot_state.prepare(self._state, table, PAGE, B)
        ids_B, positions_B = self._state[slot_state.TOKEN, :B], self._state[slot_state.POSITION, :B]
        if never is not None:  # a model that reads images
            last, behind = self._offsets[:, :B]
            positions_B = positions_B + torch.where(self._state[slot_state.WRITTEN, :B] == 0, last, behind)
        # 2. One pass over the last token of each slot, which reads the pages that its row of the table lists; (B, V).
        attention = PagedAttention(self._storage.data, table, slots_B, lengths_B, self.shares(B))
        record = None if self._routes is None else self._routes.decoding(B)
        hidden_BH = hidden_states(self.model, ids_B, positions_B, attention, routing=record)
        logits_BV = head_of(self.model).logits(hidden_BH)
        if self._routes is not None:
            self._routes.keep(self._state[slot_state.STEP, :1])
        self._tops.keep(how.tops, logits_BV, self._filters.first(B).temperature_B, self._state[slot_state.STEP, :1])
        # 3. Tokens (B,) and their log-probs (B,), the latter as the learner computes them.
        if how.temperature is not None and not how.filtered:
            possible_BV = logits_BV if never is None else logits_BV.index_fill(1, never, float("-inf"))
            tokens_B, log_probs_B = sample(possible_BV, how.temperature, uniforms_B)
        else:
            tokens_B, log_probs_B = sample_rows(logits_BV, self._filters.first(B), uniforms_B, never=never)
        if how.temperature is not None and (how.filtered or never is not None):
            log_probs_B, _, _ = row_statistics(logits_BV, tokens_B, how.temperature or 1.0, want_entropy=False)
        # 4. Slots move on, or end; the token goes to row STEP of the outputs.
        slot_state.advance(self._state, tokens_B, log_probs_B, self._ends_V, self._out_tokens, self._out_log_probs)

    def shares(self, B: int) -> Shares:
        """Shares of the keys of B queries; none where the learner attends with the same kernel."""
        if is_exact(self.model):
            return UNCUT
        shape, dtype = self._storage.shape, self._storage.dtype
        return choose_shares(B, shape.kv_heads, self._processors, shape.head_dim, self._longest, dtype)

    def release(self) -> None:
        """Nothing is running: drop the window that is under way and give the cache's memory back."""
        self._flight = None
        self._pages.release()

    def reset(self) -> None:
        """Forget everything that was being decoded, after an error."""
        self._flight = None
        self._pages.reset()
        self._state.zero_()

    def to_device(self, array: np.ndarray) -> Tensor:
        """Copy to the device; the host does not wait."""
        return upload(array, self.device)
