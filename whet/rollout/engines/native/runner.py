"""The model's forward passes for sampling: prefill prompts, decode the next tokens of every running sequence."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from whet.model.load import head_of, hidden_states
from whet.model.modality import vision_of
from whet.rollout.engines.native.cache import DecodeAttention, ExtendAttention, PrefillAttention, SlotCache
from whet.rollout.engines.native.sampler import likeliest, never_sampled, sample
from whet.rollout.engines.native.scheduler import Kept, Prefilled, Request, Sequence
from whet.rollout.uniforms import uniforms

if TYPE_CHECKING:
    from whet.model.vision import RowMedia


@dataclass(frozen=True, slots=True)
class Drawn:
    """The next tokens of some sequences, none or several of each."""

    sequences: list[Sequence]
    tokens: list[list[int]]
    log_probs: list[list[float]]
    tops: dict[Sequence, list[list[tuple[int, float]]]] = field(default_factory=dict)  # of those that asked

    def __iter__(self) -> Iterator[tuple[Sequence, list[int], list[float], list[list[tuple[int, float]]]]]:
        return zip(self.sequences, self.tokens, self.log_probs, (self.tops.get(s, []) for s in self.sequences))


class Runner(Protocol):
    """What the engine needs of whoever runs the model. Running sequences occupy slots 0..B-1."""

    model: PreTrainedModel
    vocab_size: int
    reports_tops: bool  # whether it can say which tokens were likeliest
    keeps: bool  # whether it can go on from keys and values that were kept

    def reserve(self, request: Request) -> bool:
        """Set memory aside for a prompt; False while there is not enough."""
        ...

    def prefill(self, requests: list[Request]) -> None:
        """Read the prompts of requests for which memory was set aside."""
        ...

    def fits(self, sequence: Sequence) -> bool:
        """Whether a sequence whose prompt was read can be given a slot now; if so, it will be."""
        ...

    def admit(self, admitted: list[tuple[int, Sequence]]) -> list[Drawn]:
        """Give sequences their slots; their first tokens, where they are known already."""
        ...

    def decode(self, running: list[Sequence]) -> list[Drawn]:
        """Bring the running sequences further; what was drawn, now or a call ago."""
        ...

    def rearrange(self, moves: list[tuple[int, int, Sequence]], running: int) -> None:
        """Sequences moved from slot to slot; from `running` on, slots are empty."""
        ...

    def settle(self) -> list[Drawn]:
        """Return what was drawn and not returned yet, without drawing more."""
        ...

    def keep(self, slot: int, sequence: Sequence) -> Kept | None:
        """Copy the keys and values of a sequence that has just ended in a slot; None where it cannot."""
        ...

    def finished(self, sequence: Sequence) -> None:
        """A sequence has ended, or its request has."""
        ...

    def release(self) -> None:
        """Give back the memory held between rollouts."""
        ...

    def reset(self) -> None:
        """Forget everything that was being decoded, after an error."""
        ...


class ModelRunner:
    """One token at a time over a cache of slots: the learner's module as it is, on any device."""

    reports_tops = True
    keeps = True

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        config = model.config.get_text_config()
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.device = model.device
        self.vocab_size = cast(nn.Embedding, model.get_input_embeddings()).num_embeddings
        self.cache = SlotCache(config.num_hidden_layers, heads, head_dim, model.dtype, self.device)
        self._never = never_sampled(model.config, self.device)

    def reserve(self, request: Request) -> bool:
        """The cache grows as it must."""
        return True

    def prefill(self, requests: list[Request]) -> None:
        """Keys, values and first logits of each prompt, all prompts in one packed row."""
        kept = [request for request in requests if request.kept is not None]
        requests = [request for request in requests if request.kept is None]
        if kept:
            self._extend(kept)
        if not requests:
            return
        row = lay_prompts(self.model, requests, self.device)
        lengths = row.lengths.tolist()
        attention = PrefillAttention(lengths, self.device)
        ids, positions = (torch.from_numpy(each).to(self.device) for each in (row.ids_N, row.positions))
        hidden_NH = hidden_states(self.model, ids, positions, attention, row.media)
        ends = torch.tensor(lengths, device=self.device).cumsum(0)
        logits = head_of(self.model).logits(hidden_NH[ends - 1])
        layers = [attention.layers[i] for i in sorted(attention.layers)]
        pieces = zip(*(layer.split(lengths, dim=1) for layer in layers))
        for request, kv, logits_V in zip(requests, pieces, logits):
            request.prefilled = Prefilled(torch.stack(kv), logits_V)

    def _extend(self, requests: list[Request]) -> None:
        """The same for samples whose keys and values were kept: only what came behind those is computed."""
        past = [cast(Kept, request.kept) for request in requests]
        starts = [len(kept.ids) for kept in past]
        new = [request.prompt.ids[start:] for request, start in zip(requests, starts)]
        attention = ExtendAttention([kept.kv for kept in past], [len(ids) for ids in new])
        ids = torch.tensor([token for each in new for token in each], device=self.device)
        positions = torch.cat([torch.arange(s, s + len(each), device=self.device) for s, each in zip(starts, new)])
        hidden_NH = hidden_states(self.model, ids, positions, attention)
        ends = torch.tensor([len(each) for each in new], device=self.device).cumsum(0)
        for i, (request, logits_V) in enumerate(zip(requests, head_of(self.model).logits(hidden_NH[ends - 1]))):
            request.prefilled = Prefilled(attention.whole(i), logits_V)
            request.kept = None

    def fits(self, sequence: Sequence) -> bool:
        """Every slot has room."""
        return True

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
        hidden_BH = hidden_states(self.model, ids, positions, attention)
        return [self._draw(running, head_of(self.model).logits(hidden_BH))]

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

    def finished(self, sequence: Sequence) -> None:
        """A prompt is kept until its request has ended."""
        if sequence.request.unfinished == 0:
            sequence.request.prefilled = None

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


def _asked(sequence: Sequence) -> bool:
    return sequence.request.params.top_logprobs > 0


@dataclass(frozen=True, slots=True)
class PromptRow:
    """Input of a prefill; all arrays are of the host."""

    ids_N: np.ndarray
    positions: np.ndarray  # (N,), or (3, N) where images give tokens a time and a place
    starts: np.ndarray  # of each prompt in the row
    lengths: np.ndarray
    media: RowMedia | None  # on the model's device; None where the row shows nothing


def lay_prompts(
    model: PreTrainedModel, requests: Seq[Request], device: torch.device, but_last: bool = False
) -> PromptRow:
    """The prompts of requests, without their last tokens if so asked; requests learn how positions go on behind them.

    Every prompt must have a token left.
    """
    prompts, vision = [request.prompt for request in requests], vision_of(model)
    lengths = np.array([len(prompt.ids) - but_last for prompt in prompts])
    starts = lengths.cumsum() - lengths
    shown = [prompt for prompt in prompts if prompt.media is not None]
    positions = np.empty((vision.axes if vision is not None and shown else 1, int(lengths.sum())), dtype=np.int64)
    for request, start, length in zip(requests, starts, lengths):
        own, behind = np.arange(length)[None], len(request.prompt.ids)
        if vision is not None and request.prompt.media is not None:
            own, behind = vision.positions(request.prompt)
            request.last_offset = int(own[0, -1]) - (len(request.prompt.ids) - 1)
        request.offset = behind - len(request.prompt.ids)
        positions[:, start : start + length] = own[:, :length]
    media = None
    if vision is not None and shown:
        media = vision.row_media(list(zip(starts.tolist(), prompts)), device)
    ids_N = np.concatenate([prompt.ids[:length] for prompt, length in zip(prompts, lengths)])
    return PromptRow(ids_N, positions if len(positions) > 1 else positions[0], starts, lengths, media)
