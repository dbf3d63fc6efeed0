"""From ragged samples to packed rows of tokens.

The samples of a prompt share it: the prompt is packed once and each response after it sees the prompt and itself, at
the positions it would have alone. The gradient is the same as with a copy of the prompt for every sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whet.model.attention import PackedAttention, Segment
from whet.types import Prompt, Sample


@dataclass(frozen=True, slots=True)
class Packed:
    """A micro-batch as one row of N tokens, and where its M response tokens are predicted."""

    ids_N: Tensor
    positions_N: Tensor
    attention: PackedAttention
    rows_M: Tensor  # index in the row of the token that predicts each response token
    targets_M: Tensor  # the response tokens
    place_M: Tensor  # where each response token lies in the flattened (B, T) of the micro-batch
    shape: tuple[int, int]  # (B, T)

    def unpack(self, values_M: Tensor) -> Tensor:
        """Values of response tokens as (B, T), 0 where there is no token."""
        B, T = self.shape
        flat = torch.zeros(B * T, dtype=values_M.dtype, device=values_M.device)
        return flat.scatter(0, self.place_M, values_M).view(B, T)


def pack(samples: Sequence[Sample], share_prefix: bool, device: torch.device | str = "cpu") -> Packed:
    """Lay out samples in one row; samples of the same prompt that follow each other share it."""
    T = max(len(s.ids) for s in samples)
    ids: list[int] = []
    positions: list[int] = []
    segments: list[Segment] = []
    rows: list[int] = []
    place: list[int] = []
    targets: list[int] = []

    def lay(tokens: list[int], first_position: int, prefix: Segment | None) -> Segment:
        segment = Segment(len(ids), len(tokens), *((prefix.start, prefix.length) if prefix else (0, 0)))
        ids.extend(tokens)
        positions.extend(range(first_position, first_position + len(tokens)))
        segments.append(segment)
        return segment

    prompt: Segment | None = None
    shared: Prompt | None = None  # the prompt that `prompt` is the segment of
    for b, sample in enumerate(samples):
        P = len(sample.prompt.ids)
        if not sample.ids:  # aborted before its first token
            continue
        if not share_prefix:
            segment = lay(sample.prompt.ids + sample.ids[:-1], 0, None)
            rows.extend(range(segment.start + P - 1, segment.start + segment.length))
        else:
            if prompt is None or sample.prompt is not shared:
                prompt, shared = lay(sample.prompt.ids, 0, None), sample.prompt
            rows.append(prompt.start + P - 1)
            if len(sample.ids) > 1:  # the last token predicts nothing and is left out
                segment = lay(sample.ids[:-1], P, prompt)
                rows.extend(range(segment.start, segment.start + segment.length))
        targets.extend(sample.ids)
        place.extend(range(b * T, b * T + len(sample.ids)))
    ids_N, positions_N, rows_M, targets_M, place_M = (
        torch.tensor(x, device=device) for x in (ids, positions, rows, targets, place)
    )
    return Packed(ids_N, positions_N, PackedAttention(segments, device), rows_M, targets_M, place_M, (len(samples), T))


def micro_batches(
    samples: Sequence[Sample], share_prefix: bool, max_tokens: int | None, max_samples: int
) -> list[list[int]]:
    """Cut samples into micro-batches; each is a list of indices into `samples`. Empty responses are left out.

    With `max_tokens` the packed row of each holds at most that many tokens (a single longer sample still gets its
    own); without it each holds at most `max_samples` samples. Longest first into the first micro-batch with room.
    """
    written = [i for i, sample in enumerate(samples) if sample.ids]
    if max_tokens is None:
        return [written[i : i + max_samples] for i in range(0, len(written), max_samples)]
    units = list(_units(samples, written, share_prefix, max_tokens))
    bins: list[tuple[int, list[int]]] = []
    for size, members in sorted(units, key=lambda unit: -unit[0]):
        for i, (used, held) in enumerate(bins):
            if used + size <= max_tokens:
                bins[i] = (used + size, held + members)
                break
        else:
            bins.append((size, members))
    return [held for _, held in bins]


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
    T = max(len(r) for r in rows)
    return torch.tensor([list(r) + [0] * (T - len(r)) for r in rows], dtype=dtype)
