"""The model's forward passes for sampling: prefill prompts, decode the next tokens of every running sequence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from whet.model.load import head_of, hidden_states
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.cache import DecodeAttention, PrefillAttention, SlotCache
from whet.rollout.engines.native.sampler import likeliest, never_sampled, sample
from whet.rollout.engines.native.sequence import Chunk, Kept, Prefilled, Reading, Sequence, lay_chunks
from whet.rollout.uniforms import uniforms
from whet.types import Prompt

if TYPE_CHECKING:
    from whet.rollout.engines.native.pages import KeptPages
    from whet.rollout.engines.native.routes import PassRecord


@dataclass(frozen=True, slots=True)
class Drawn:
    """The next tokens of some sequences, none or several of each."""

    sequences: list[Sequence]
    tokens: list[list[int]]
    log_probs: list[list[float]]
    tops: dict[Sequence, list[list[tuple[int, float]]]] = field(default_factory=dict)  # of those that asked
    routes: dict[Sequence, np.ndarray] = field(default_factory=dict)  # (tokens, layers, K) experts of what was read

    def __iter__(self) -> Iterator[tuple[Sequence, list[int], list[float], list[list[tuple[int, float]]]]]:
        return zip(self.sequences, self.tokens, self.log_probs, (self.tops.get(s, []) for s in self.sequences))

    def take_routes(self, sequence: Sequence, taken: int) -> None:
        """Give a sequence the experts of the first `taken` tokens that were read for it, where they were recorded."""
        if sequence in self.routes:
            sequence.routes.append(self.routes[sequence][:taken])


class ModelRunner:
    """One token at a time over a cache of slots: the learner's module as it is, on any device."""

    keeps = True
    most_kept = 1  # samples for each slot, of which it makes copies

    def __init__(self, model: PreTrainedModel, record_routing: bool = False) -> None:
        self.model = model
        self._shape = None
        if record_routing:
            from whet.model.routing import RoutingShape  # models without experts need none of it

            self._shape = RoutingShape(model)
        config = model.config.get_text_config()
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.device = model.device
        self.vocab_size = cast(nn.Embedding, model.get_input_embeddings()).num_embeddings
        self.cache = SlotCache(config.num_hidden_layers, heads, head_dim, model.dtype, self.device)
        self._never = never_sampled(model.config, self.device)

    def check(self, prompt: Prompt, params: SamplingParams) -> None:
        """Accept every request: the cache grows as it must."""

    def reserve(self, sequence: Sequence) -> bool:
        """Note that the prompt must be read unless it was, from behind what was kept of it."""
        request = sequence.request
        if request.prefilled is None and request.reading is None:
            kept = 0 if request.kept is None else len(request.kept.ids)
            request.reading = Reading(request, None, kept, len(request.prompt.ids))
        return True

    def prefill(self, chunks: list[Chunk]) -> None:
        """Read chunks of prompts; behind the last of a prompt its first logits are known."""
        behind = [chunk for chunk in chunks if chunk.reading.at > 0]
        chunks = [chunk for chunk in chunks if chunk.reading.at == 0]
        if behind:
            self._extend(behind)
        if not chunks:
            return
        row = lay_chunks(self.model, chunks, self.device)
        lengths = row.lengths.tolist()
        attention = PrefillAttention(lengths, self.device)
        ids, positions = (torch.from_numpy(each).to(self.device) for each in (row.ids_N, row.positions))
        record = self._record(len(ids))
        hidden_NH = hidden_states(self.model, ids, positions, attention, row.media, record)
        if record is not None:
            record.to_chunks(chunks)
        ends = torch.tensor(lengths, device=self.device).cumsum(0)
        logits = head_of(self.model).logits(hidden_NH[ends - 1])
        layers = [attention.layers[i] for i in sorted(attention.layers)]
        pieces = zip(*(layer.split(lengths, dim=1) for layer in layers))
        for chunk, kv, logits_V in zip(chunks, pieces, logits):
            _note(chunk, torch.stack(kv), logits_V)

    def _extend(self, chunks: list[Chunk]) -> None:
        """The same for prompts of which keys and values are there: only what comes behind those is computed."""
        from whet.rollout.engines.native.extend import ExtendAttention  # single turns keep nothing

        past = [cast(Kept, reading.request.kept) for reading, _ in chunks]
        starts = [reading.at for reading, _ in chunks]
        new = [reading.ids(reading.at, stop) for reading, stop in chunks]
        attention = ExtendAttention([kept.kv for kept in past], [len(ids) for ids in new])
        ids = torch.tensor([token for each in new for token in each], device=self.device)
        positions = torch.cat([torch.arange(s, s + len(each), device=self.device) for s, each in zip(starts, new)])
        record = self._record(len(ids))
        hidden_NH = hidden_states(self.model, ids, positions, attention, routing=record)
        if record is not None:
            record.to_chunks(chunks)
        ends = torch.tensor([len(each) for each in new], device=self.device).cumsum(0)
        for i, (chunk, logits_V) in enumerate(zip(chunks, head_of(self.model).logits(hidden_NH[ends - 1]))):
            _note(chunk, attention.whole(i), logits_V)

    def grow(self, running: list[Sequence], spare: bool = False) -> bool:
        """Every slot has room: `decode` enlarges the cache."""
        return True

    def evict(self, sequence: Sequence) -> bool:
        """Keep everything."""
        return False

    def admit(self, admitted: list[tuple[int, Sequence]]) -> list[Drawn]:
        """Copy prompts into slots and draw first tokens from their logits."""
        running = max(slot for slot, _ in admitted) + 1
        self.cache.reserve(running, max(s.length for _, s in admitted) + 1)
        rows = []
        for slot, sequence in admitted:
            request = sequence.request
            prefilled = cast(Prefilled, request.prefilled)  # the scheduler admits no other
            self.cache.fill(slot, prefilled.kv)
            rows.append(prefilled.logits_V)
            if sequence is request.sequences[-1]:
                request.prefilled = None
        return [self._draw([s for _, s in admitted], torch.stack(rows))]

    def decode(self, running: list[Sequence]) -> list[Drawn]:
        """The next token of every running sequence."""
        lengths = [s.length for s in running]
        self.cache.reserve(len(running), max(lengths))
        positions = torch.tensor(lengths, device=self.device) - 1
        ids = torch.tensor([s.ids[-1] for s in running], device=self.device)
        attention = DecodeAttention(self.cache, positions, max(lengths))
        offsets = [s.request.offset for s in running]
        if any(offsets):
            positions = positions + torch.tensor(offsets, device=self.device)
        record = self._record(len(ids))
        hidden_BH = hidden_states(self.model, ids, positions, attention, routing=record)
        drawn = self._draw(running, head_of(self.model).logits(hidden_BH))
        if record is not None:
            drawn.routes.update(zip(running, record.routes_LNK.transpose(0, 1)[:, None].cpu().numpy()))
        return [drawn]

    def _record(self, tokens: int) -> PassRecord | None:
        """A record of a pass's routing; None where it is not wanted."""
        if self._shape is None:
            return None
        from whet.rollout.engines.native.routes import PassRecord

        return PassRecord(self._shape, tokens, self.device)

    def rearrange(self, moves: list[tuple[int, int, Sequence]], running: int) -> None:
        """Copy what a moved sequence has in the cache."""
        for source, target, sequence in moves:
            self.cache.move(source, target, sequence.length)

    def settle(self) -> list[Drawn]:
        """Every token is returned as it is drawn."""
        return []

    def keep(self, slot: int, sequence: Sequence) -> Kept | None:
        """Copy a slot; the last token was drawn and not read, so it has no keys and values yet."""
        if not sequence.ids or sequence.request.prompt.media is not None:  # images shift positions
            return None
        ids = [*sequence.request.prompt.ids, *sequence.ids[:-1]]
        return Kept(ids, self.cache.data[:, :, slot, : len(ids)].clone())

    def trim(self, kept: Kept | KeptPages, tokens: int) -> Kept:
        """Leave the first tokens of what was kept."""
        kept = cast(Kept, kept)
        return kept if tokens == len(kept.ids) else Kept(kept.ids[:tokens], kept.kv[:, :, :tokens])

    def finished(self, sequence: Sequence) -> None:
        """A prompt is kept until its request has ended."""
        if sequence.request.unfinished == 0:
            sequence.request.prefilled = None

    def occupancy(self) -> tuple[int, int]:
        """No pages."""
        return 0, 0

    def release(self) -> None:
        """Give back the memory held between rollouts."""
        self.cache.release()

    def reset(self) -> None:
        """Slots hold nothing that the next sequence in them would read."""

    def _draw(self, sequences: list[Sequence], logits_BV: Tensor) -> Drawn:
        keys = torch.tensor([s.key for s in sequences], device=self.device)
        written = torch.tensor([len(s.ids) for s in sequences], device=self.device)
        params = [s.request.params for s in sequences]
        tokens, log_probs = sample(logits_BV, params, uniforms(keys, written), self._never)
        tops = {s: [likeliest(logits_V, s.request.params)] for s, logits_V in zip(sequences, logits_BV) if _asked(s)}
        return Drawn(list(sequences), tokens[:, None].tolist(), log_probs[:, None].tolist(), tops)


def _note(chunk: Chunk, kv: Tensor, logits_V: Tensor) -> None:
    """Keep (layers, 2, stop, heads, head_dim) of a prompt's first tokens: for its samples, or for the rest of it."""
    (reading, stop), request = chunk, chunk.reading.request
    reading.advance(stop)
    if stop < reading.stop:
        request.kept = Kept(request.prompt.ids[:stop], kv)
    else:
        request.prefilled, request.kept = Prefilled(kv, logits_V), None


def _asked(sequence: Sequence) -> bool:
    return sequence.request.params.top_logprobs > 0
