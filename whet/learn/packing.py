"""Packing: B ragged samples become one row of N tokens without padding.

The samples of a prompt share it: the prompt is packed once, and each response after it attends to the prompt and to
itself, at the positions it would have alone. The gradient is the same as with a copy of the prompt for every sample.
M is the number of response tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from whet.model.attention import Attention, packed_attention_for
from whet.model.routing import Routing, replay_of
from whet.types import Media, Prompt, Sample

if TYPE_CHECKING:
    from whet.model.vision import RowMedia, Vision


@dataclass(frozen=True, slots=True)
class Packed:
    """A micro-batch as one row of N tokens, and where its M response tokens are predicted."""

    ids_N: Tensor
    positions_N: Tensor  # (3, N) for a model that gives image tokens a time, a row and a column
    attention: Attention
    rows_M: Tensor  # index in the row of the token that predicts each response token
    targets_M: Tensor  # the response tokens
    place_M: Tensor  # where each response token lies in the flattened (B, T) of the micro-batch
    shape: tuple[int, int]  # (B, T)
    media: RowMedia | None = None  # images and videos of the row's prompts; None for a text model
    routing: Routing | None = None  # experts that the sampler sent the tokens to, where it wrote them down
    join: Callable[[Tensor], Tensor] | None = None  # values of this rank's tokens -> values of all M, on every rank

    def unpack(self, values_M: Tensor) -> Tensor:
        """Return values of response tokens (M,) as (B, T), 0 where there is no token."""
        B, T = self.shape
        values_M = values_M if self.join is None else self.join(values_M)
        flat = torch.zeros(B * T, dtype=values_M.dtype, device=values_M.device)
        return flat.scatter(0, self.place_M, values_M).view(B, T)


@dataclass(frozen=True, slots=True)
class _Row:
    """Places of prompts and responses in a packed row of N tokens. S samples have a response of at least one token."""

    samples: list[Sample]  # (S,)
    length: int  # N
    segments: list[tuple[int, int, int, int]]  # start, length, prefix_start, prefix_length of each attention segment
    prompts: list[tuple[int, Prompt]]  # start of each prompt, which several responses may share
    starts: list[int]  # (S,) place of each response's first token
    ends: list[int]  # (S,) place of the last prompt token before each response, which predicts its first


def _arrange(samples: list[Sample], share_prefix: bool) -> _Row:
    """Place prompts and responses one after another; consecutive samples of the same prompt share it.

    With sharing: [prompt A][response A1][response A2][prompt B][response B1]; without, a prompt before each response.
    The last token of a response predicts nothing and is left out of the row.
    """
    row = _Row(samples, 0, [], [], [], [])
    n = start = 0
    shared: Prompt | None = None
    for sample in samples:
        prompt, P = sample.prompt, len(sample.prompt.ids)
        first, *branches = _branches(sample)
        if not share_prefix or prompt is not shared:
            row.prompts.append((n, prompt))
            start, shared = n, prompt
            row.segments.append((n, P if share_prefix else P + first, 0, 0))
            n += P
        if share_prefix and first:
            row.segments.append((n, first, start, P))
        row.ends.append(start + P - 1)
        row.starts.append(n)
        n += first
        for length in branches:  # a conversation written anew sees nothing of what came before
            row.segments.append((n, length, 0, 0))
            n += length
    return replace(row, length=n)


def _branches(sample: Sample) -> list[int]:
    """Return how many tokens of the row each branch of a response has: all of its tokens but the response's last."""
    lengths = sample.branches
    lengths[-1] -= 1
    return lengths if lengths[-1] or len(lengths) == 1 else lengths[:-1]


def pack(
    samples: Sequence[Sample], share_prefix: bool, device: torch.device | str = "cpu", vision: Vision | None = None
) -> Packed:
    """Pack B samples into one row; consecutive samples of the same prompt share it and its images.

    `vision` is the vision part of the model, None for a text model. All arrays are made on the host and copied at once.
    """
    # 1. Places in the row. Samples that were aborted before their first token have none.
    written = [b for b, sample in enumerate(samples) if sample.ids]
    row = _arrange([samples[b] for b in written], share_prefix)
    T = max(len(sample.ids) for sample in samples)
    response_lengths = np.array([len(sample.ids) for sample in row.samples])
    prompt_lengths = np.array([len(prompt.ids) for _, prompt in row.prompts])
    in_prompts = _ranges([at for at, _ in row.prompts], prompt_lengths)  # places of all prompt tokens
    in_responses = _ranges(row.starts, response_lengths - 1)  # places of all response tokens but each one's last
    # 2. Token ids (N,). Targets (M,) are all response tokens, in the order of samples.
    targets_M = _flat((sample.ids for sample in row.samples), int(response_lengths.sum()))
    inner_M = np.ones(len(targets_M), dtype=bool)
    inner_M[np.cumsum(response_lengths) - 1] = False
    ids_N = np.empty(row.length, dtype=np.int64)
    ids_N[in_prompts] = _flat((prompt.ids for _, prompt in row.prompts), int(prompt_lengths.sum()))
    ids_N[in_responses] = targets_M[inner_M]
    # 3. Positions (axes, N): a response continues after its prompt, wherever it lies in the row.
    positions, media = _positions(row, in_prompts, in_responses, prompt_lengths, response_lengths, vision)
    # 4. Response token j is predicted by the token before it; the first of a response by the last of its prompt.
    rows_M = _ranges(np.array(row.starts) - 1, response_lengths)
    rows_M[np.cumsum(response_lengths) - response_lengths] = row.ends
    # 5. Token j of sample b goes to b·T + j of the flattened (B, T).
    place_M = _ranges(np.array(written) * T, response_lengths)
    ids, flat, rows, targets, place = to_device(device, ids_N, positions.ravel(), rows_M, targets_M, place_M)
    return Packed(
        ids_N=ids,
        positions_N=flat if len(positions) == 1 else flat.view(positions.shape),
        attention=packed_attention_for(np.array(row.segments, dtype=np.int64), device),
        rows_M=rows,
        targets_M=targets,
        place_M=place,
        shape=(len(samples), T),
        media=None if vision is None else vision.row_media(media, device),
        routing=_routing(row, device),
    )


def _routing(row: _Row, device: torch.device | str) -> Routing | None:
    """Return the recorded routing of the row's tokens; prompts take that of the first sample that has any."""
    recorded = [(at, s) for at, s in zip(row.starts, row.samples) if s.routing is not None and len(s.branches) == 1]
    if not recorded:
        return None
    like = recorded[0][1].routing
    routing_NLK = np.full((row.length, *like.shape[1:]), np.iinfo(like.dtype).max, dtype=like.dtype)
    known = {id(sample.prompt): sample.routing for _, sample in reversed(recorded)}
    for at, prompt in row.prompts:
        if id(prompt) in known:
            own = known[id(prompt)][: len(prompt.ids)]
            routing_NLK[at : at + len(own)] = own
    for at, sample in recorded:  # an episode may end with tokens that the sampler never read
        own = sample.routing[len(sample.prompt.ids) :][: len(sample.ids) - 1]
        routing_NLK[at : at + len(own)] = own
    return replay_of(routing_NLK, device)


def _positions(
    row: _Row,
    in_prompts: np.ndarray,
    in_responses: np.ndarray,
    prompt_lengths: np.ndarray,
    response_lengths: np.ndarray,
    vision: Vision | None,
) -> tuple[np.ndarray, list[tuple[int, Prompt]]]:
    """Return the positions (axes, N) of all tokens, and where prompts and responses with images lie."""
    positions = np.empty((1 if vision is None else vision.axes, row.length), dtype=np.int64)
    # 1. Prompts count from 0, unless images give their tokens positions of another kind.
    positions[:, in_prompts] = _ranges(np.zeros_like(prompt_lengths), prompt_lengths)
    first_S = [len(sample.prompt.ids) for sample in row.samples]  # the position of each response's first token
    if vision is not None:
        first_S = _place_images(positions, row, vision)
    # 2. Responses count on from there, unless they hold images themselves.
    positions[:, in_responses] = _ranges(first_S, response_lengths - 1)
    for at, sample in zip(row.starts, row.samples):
        if any(segment.restart for segment in sample.segments):
            first, *branches = _branches(sample)
            at += first
            for length in branches:
                positions[:, at : at + length] = np.arange(length)
                at += length
    return positions, row.prompts if vision is None else _place_response_images(positions, row, vision)


def _place_images(positions: np.ndarray, row: _Row, vision: Vision) -> list[int]:
    """Set the positions of prompts with images; return the position of each response's first token."""
    first = {id(prompt): len(prompt.ids) for _, prompt in row.prompts}
    for at, prompt in row.prompts:
        if prompt.media is not None:
            positions[:, at : at + len(prompt.ids)], first[id(prompt)] = vision.positions(prompt)
    return [first[id(sample.prompt)] for sample in row.samples]


def _place_response_images(positions: np.ndarray, row: _Row, vision: Vision) -> list[tuple[int, Prompt]]:
    """Set the positions of responses with images inside, which move their later tokens.

    Return where prompts and such responses lie, in the order of the row, in which images are read.
    """
    found = list(row.prompts)
    for at, sample in zip(row.starts, row.samples):
        if any(segment.media is not None for segment in sample.segments):
            whole, _ = vision.positions(_whole(sample))
            P, R = len(sample.prompt.ids), len(sample.ids)
            positions[:, at : at + R - 1] = whole[:, P : P + R - 1]
            found.append((at, replace(sample.prompt, ids=sample.ids[:-1], media=_response_media(sample))))
    return sorted(found, key=lambda pair: pair[0])


def _response_media(sample: Sample) -> Media | None:
    from whet.model.media import join_media

    return join_media(segment.media for segment in sample.segments)


def _whole(sample: Sample) -> Prompt:
    """Return prompt and response as one prompt, for the positions of its tokens."""
    from whet.model.media import join_media

    media = join_media([sample.prompt.media, _response_media(sample)])
    return replace(sample.prompt, ids=sample.prompt.ids + sample.ids, media=media)


def to_device(device: torch.device | str, *arrays: np.ndarray) -> list[Tensor]:
    """Copy flat arrays of one dtype to a device in one transfer, for which the host does not wait on a GPU."""
    joined = torch.from_numpy(np.concatenate(arrays))
    if torch.device(device).type == "cuda":
        joined = joined.pin_memory().to(device, non_blocking=True)
    return list(joined.split([len(array) for array in arrays]))


def _ranges(starts: Sequence[int] | np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return start, start + 1, ..., start + length − 1 of each pair, concatenated."""
    before = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) + np.repeat(np.asarray(starts) - before, lengths)


def _flat(rows: Iterable[Sequence[float]], count: int, dtype: type = np.int64) -> np.ndarray:
    """Concatenate ragged rows of `count` numbers in all."""
    return np.fromiter(chain.from_iterable(rows), dtype=dtype, count=count)


def pad(rows: Sequence[Sequence[float]], dtype: torch.dtype = torch.float32) -> Tensor:
    """Return ragged rows as (B, T), zeros at the end."""
    lengths = np.array([len(row) for row in rows])
    padded = np.zeros((len(rows), int(lengths.max())))
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = _flat(rows, int(lengths.sum()), np.float64)
    return torch.from_numpy(padded).to(dtype)
