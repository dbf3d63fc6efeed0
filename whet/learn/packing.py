"""From ragged samples to packed rows of tokens.

The samples of a prompt share it: the prompt is packed once and each response after it sees the prompt and itself, at
the positions it would have alone. The gradient is the same as with a copy of the prompt for every sample.
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
from whet.model.media import join_media
from whet.types import Media, Prompt, Sample

if TYPE_CHECKING:
    from whet.model.vision import RowMedia, Vision


@dataclass(frozen=True, slots=True)
class Packed:
    """A micro-batch as one row of N tokens, and where its M response tokens are predicted."""

    ids_N: Tensor
    positions_N: Tensor  # (3, N) for a model whose images give tokens a time and a place
    attention: Attention
    rows_M: Tensor  # index in the row of the token that predicts each response token
    targets_M: Tensor  # the response tokens
    place_M: Tensor  # where each response token lies in the flattened (B, T) of the micro-batch
    shape: tuple[int, int]  # (B, T)
    media: RowMedia | None = None  # images and videos of the row's prompts; None for a text model
    join: Callable[[Tensor], Tensor] | None = None  # from values of this rank's tokens to those of all, on every rank

    def unpack(self, values_M: Tensor) -> Tensor:
        """Values of response tokens as (B, T), 0 where there is no token."""
        B, T = self.shape
        values_M = values_M if self.join is None else self.join(values_M)
        flat = torch.zeros(B * T, dtype=values_M.dtype, device=values_M.device)
        return flat.scatter(0, self.place_M, values_M).view(B, T)


def pack(
    samples: Sequence[Sample], share_prefix: bool, device: torch.device | str = "cpu", vision: Vision | None = None
) -> Packed:
    """Lay out samples in one row; samples of the same prompt that follow each other share it, and its images.

    The last token of a response predicts nothing and is left out of the row. `vision` is the model's, None of a
    text model.
    """
    segments: list[tuple[int, int, int, int]] = []  # start, length, prefix_start, prefix_length
    laid: list[tuple[int, Prompt]] = []  # where each prompt lies in the row
    ends: list[int] = []  # the last prompt token before each response, which predicts its first
    starts: list[int] = []  # the first token of each response
    written = [b for b, sample in enumerate(samples) if sample.ids]  # others were aborted before their first token
    n = start = 0
    shared: Prompt | None = None
    for b in written:
        prompt, R = samples[b].prompt, len(samples[b].ids)
        P = len(prompt.ids)
        if not share_prefix or prompt is not shared:
            laid.append((n, prompt))
            start, shared = n, prompt
            segments.append((n, P if share_prefix else P + R - 1, 0, 0))
            n += P
        if share_prefix and R > 1:
            segments.append((n, R - 1, start, P))
        ends.append(start + P - 1)
        starts.append(n)
        n += R - 1

    T = max(len(sample.ids) for sample in samples)
    responses = np.array([len(samples[b].ids) for b in written])
    prompts = np.array([len(prompt.ids) for _, prompt in laid])
    targets_M = _flat((samples[b].ids for b in written), int(responses.sum()))
    inner_M = np.ones(len(targets_M), dtype=bool)
    inner_M[np.cumsum(responses) - 1] = False
    ids_N = np.empty(n, dtype=np.int64)
    in_prompts, in_responses = _ranges([at for at, _ in laid], prompts), _ranges(starts, responses - 1)
    ids_N[in_prompts] = _flat((prompt.ids for _, prompt in laid), int(prompts.sum()))
    ids_N[in_responses] = targets_M[inner_M]
    positions = np.empty((1 if vision is None else vision.axes, n), dtype=np.int64)
    positions[:, in_prompts] = _ranges(np.zeros_like(prompts), prompts)
    behind = [len(samples[b].prompt.ids) for b in written]  # the position of each response's first token
    if vision is not None:
        behind = _place_images(positions, [samples[b] for b in written], laid, vision)
    positions[:, in_responses] = _ranges(behind, responses - 1)
    if vision is not None:
        laid = _place_response_images(positions, [samples[b] for b in written], starts, laid, vision)
    rows_M = _ranges(np.array(starts) - 1, responses)
    rows_M[np.cumsum(responses) - responses] = ends
    table = np.array(segments, dtype=np.int64)
    tensors = to_device(
        device,
        ids_N,
        positions.ravel(),
        rows_M,
        targets_M,
        _ranges(np.array(written) * T, responses),
    )
    ids, flat, rows, targets, place = tensors
    return Packed(
        ids_N=ids,
        positions_N=flat if len(positions) == 1 else flat.view(positions.shape),
        attention=packed_attention_for(table, device),
        rows_M=rows,
        targets_M=targets,
        place_M=place,
        shape=(len(samples), T),
        media=None if vision is None else vision.row_media(laid, device),
    )


def _place_images(
    positions: np.ndarray, samples: Sequence[Sample], laid: Sequence[tuple[int, Prompt]], vision: Vision
) -> list[int]:
    """Set the positions of prompts with images; return the position of each response's first token."""
    behind = {id(prompt): len(prompt.ids) for _, prompt in laid}
    for at, prompt in laid:
        if prompt.media is not None:
            positions[:, at : at + len(prompt.ids)], behind[id(prompt)] = vision.positions(prompt)
    return [behind[id(sample.prompt)] for sample in samples]


def _place_response_images(
    positions: np.ndarray,
    samples: Sequence[Sample],
    starts: Sequence[int],
    laid: Sequence[tuple[int, Prompt]],
    vision: Vision,
) -> list[tuple[int, Prompt]]:
    """Set the positions of responses with images inside, which move their later tokens.

    Return where prompts and such responses lie, in the order of the row, in which images are read.
    """
    found = list(laid)
    for at, sample in zip(starts, samples):
        if any(segment.media is not None for segment in sample.segments):
            whole, _ = vision.positions(_whole(sample))
            P, R = len(sample.prompt.ids), len(sample.ids)
            positions[:, at : at + R - 1] = whole[:, P : P + R - 1]
            found.append((at, replace(sample.prompt, ids=sample.ids[:-1], media=_response_media(sample))))
    return sorted(found, key=lambda pair: pair[0])


def _response_media(sample: Sample) -> Media | None:
    return join_media(segment.media for segment in sample.segments)


def _whole(sample: Sample) -> Prompt:
    """Return prompt and response as one prompt, for the positions of its tokens."""
    media = join_media([sample.prompt.media, _response_media(sample)])
    return replace(sample.prompt, ids=sample.prompt.ids + sample.ids, media=media)


def to_device(device: torch.device | str, *arrays: np.ndarray) -> list[Tensor]:
    """Flat arrays of one dtype as tensors on a device: one copy, which on a GPU nobody waits for."""
    joined = torch.from_numpy(np.concatenate(arrays))
    if torch.device(device).type == "cuda":
        joined = joined.pin_memory().to(device, non_blocking=True)
    return list(joined.split([len(array) for array in arrays]))


def _ranges(starts: Sequence[int] | np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """start, start + 1, ... for each pair, one after the other."""
    before = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) + np.repeat(np.asarray(starts) - before, lengths)


def _flat(rows: Iterable[Sequence[float]], count: int, dtype: type = np.int64) -> np.ndarray:
    """Ragged rows one after the other."""
    return np.fromiter(chain.from_iterable(rows), dtype=dtype, count=count)


def micro_batches(
    samples: Sequence[Sample], share_prefix: bool, max_tokens: int | None, max_samples: int
) -> list[list[int]]:
    """Cut samples into micro-batches; each is a list of indices into `samples`. Empty responses are left out.

    With `max_tokens` the packed row of each holds at most that many tokens (a single longer sample still gets its
    own), and they are as few and as even as that allows; without it each holds at most `max_samples` samples.
    """
    written = [i for i, sample in enumerate(samples) if sample.ids]
    if max_tokens is None:
        return [written[i : i + max_samples] for i in range(0, len(written), max_samples)]
    units = sorted(_units(samples, written, share_prefix, max_tokens), key=lambda unit: -unit[0])
    fewest = max(1, -(-sum(size for size, _ in units) // max_tokens))
    for count in range(fewest, len(units) + 1):
        bins = _spread(units, count)
        if all(size <= max_tokens or len(members) == 1 for size, members in bins):
            return [members for _, members in bins if members]
    return [members for _, members in units]


def _spread(units: list[tuple[int, list[int]]], count: int) -> list[tuple[int, list[int]]]:
    """Units, the largest first, each into the emptiest of `count` micro-batches."""
    bins: list[tuple[int, list[int]]] = [(0, []) for _ in range(count)]
    for size, members in units:
        i = min(range(count), key=lambda i: bins[i][0])
        bins[i] = (bins[i][0] + size, bins[i][1] + members)
    return bins


def _units(
    samples: Sequence[Sample], written: list[int], share_prefix: bool, max_tokens: int
) -> Iterable[tuple[int, list[int]]]:
    """Samples that stay together, with their packed size: a prompt's samples, cut where they exceed the budget."""
    size, members = 0, list[int]()
    for i in written:
        sample = samples[i]
        prompt, response = len(sample.prompt.ids), len(sample.ids)
        joins = bool(members) and share_prefix and sample.prompt is samples[members[-1]].prompt
        if joins and size + response <= max_tokens:
            size += response
            members.append(i)
            continue
        if members:
            yield size, members
        size, members = prompt + response, [i]
    if members:
        yield size, members


def pad(rows: Sequence[Sequence[float]], dtype: torch.dtype = torch.float32) -> Tensor:
    """Ragged rows as (B, T) with zeros at the end."""
    lengths = np.array([len(row) for row in rows])
    padded = np.zeros((len(rows), int(lengths.max())))
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = _flat(rows, int(lengths.sum()), np.float64)
    return torch.from_numpy(padded).to(dtype)
