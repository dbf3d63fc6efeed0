"""Packing: B ragged samples become one row of N tokens without padding.

Samples share what they have in common: a prompt is packed once for all its samples, and each response after it attends
to the prompt and to itself, at the positions it would have alone. Branches of an episode, and episodes of a group,
share every common beginning in the same way (`prefix_tree.py`). The gradient is the same as with copies.
M is the number of response tokens that are predicted: all of them, or where a sample has several branches those that
the policy drew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from whet.learn.branches import Branch, Branches, is_episode
from whet.model.attention import Attention, packed_attention_for
from whet.types import Prompt, Sample

if TYPE_CHECKING:
    from whet.learn.prefix_tree import PrefixTree
    from whet.model.routing import Routing
    from whet.model.vision import RowMedia, Vision

_LEAST_SAVED = 1 / 8  # part of the row that a tree of episodes without branches must save: its segments are shorter


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
    tokens: int = 0  # N, of all ranks that share the row
    tokens_apart: int = 0  # that the row would have if its samples shared nothing

    def unpack(self, values_M: Tensor) -> Tensor:
        """Return values of response tokens (M,) as (B, T), 0 where there is no token."""
        B, T = self.shape
        values_M = values_M if self.join is None else self.join(values_M)
        flat = torch.zeros(B * T, dtype=values_M.dtype, device=values_M.device)
        return flat.scatter(0, self.place_M, values_M).view(B, T)


@dataclass(frozen=True, slots=True)
class _Row:
    """Places of branches in a packed row of N tokens."""

    length: int  # N
    segments: np.ndarray  # (S, 4): start, length, prefix start and prefix length of each attention segment
    places: list[np.ndarray]  # of each branch, where its tokens lie


def _arrange(samples: Sequence[Sample], branches: list[Branch], share_prefix: bool) -> _Row:
    """Place branches in a row, as a tree where there are episodes and it is worth it.

    Single turns share their prompts and nothing else: beyond those they have little in common.
    """
    flat = _in_order(branches, share_prefix)
    if not share_prefix or not any(map(is_episode, samples)):
        return flat
    from whet.learn.prefix_tree import PrefixTree  # single turns need none of it

    tree = PrefixTree()
    for branch in branches:
        tree.add(branch.keys)
    saved = flat.length - tree.size
    if saved < _LEAST_SAVED * flat.length and all(branch.prompt is not None for branch in branches):
        return flat
    return _Row(tree.size, tree.lay(), [tree.places(branch.keys) for branch in branches])


def _in_order(branches: list[Branch], share_prefix: bool) -> _Row:
    """Place branches one after another; consecutive samples of the same prompt share it.

    With sharing: [prompt A][response A1][response A2][prompt B][response B1]; without, a prompt before each response.
    """
    segments: list[tuple[int, int, int, int]] = []
    places: list[np.ndarray] = []
    n = start = 0
    shared: Prompt | None = None
    for branch in branches:
        P, L = 0 if branch.prompt is None else len(branch.prompt.ids), len(branch.ids)
        if branch.prompt is not None and (not share_prefix or branch.prompt is not shared):
            start, shared = n, branch.prompt
            segments.append((n, P if share_prefix else L, 0, 0))
            n += P
        if branch.prompt is None:  # a conversation written anew sees nothing of what came before
            segments.append((n, L, 0, 0))
        elif share_prefix and L > P:
            segments.append((n, L - P, start, P))
        places.append(np.concatenate([np.arange(start, start + P), np.arange(n, n + L - P)]))
        n += L - P
    return _Row(n, np.array(segments, dtype=np.int64).reshape(-1, 4), places)


def pack(
    samples: Sequence[Sample], share_prefix: bool, device: torch.device | str = "cpu", vision: Vision | None = None
) -> Packed:
    """Pack B samples into one row; with `share_prefix` they share what they have in common, images included.

    `vision` is the vision part of the model, None for a text model. All arrays are made on the host and copied at once.
    """
    # 1. Places in the row. Samples that were aborted before their first token have none.
    branches = Branches().of(samples)
    row = _arrange(samples, branches, share_prefix)
    T = max(len(sample.ids) for sample in samples)
    # 2. Token ids (N,) and positions (axes, N); where branches share a token they agree on both.
    ids_N = np.empty(row.length, dtype=np.int64)
    positions = np.empty((1 if vision is None else vision.axes, row.length), dtype=np.int64)
    position_of = _Positions(vision)
    for branch, places in zip(branches, row.places):
        ids_N[places] = branch.ids
        positions[:, places] = position_of(branch)
    # 3. Response token j, at index i of its branch, is predicted by the token at i - 1, and goes to b·T + j of (B, T).
    rows_M = _joined([p[branch.predicted - branch.offset - 1] for branch, p in zip(branches, row.places)])
    targets_M = _joined([branch.targets for branch in branches])
    place_M = _joined([branch.row * T + branch.predicted for branch in branches])
    ids, flat, rows, targets, place = to_device(device, ids_N, positions.ravel(), rows_M, targets_M, place_M)
    return Packed(
        ids_N=ids,
        positions_N=flat if len(positions) == 1 else flat.view(positions.shape),
        attention=packed_attention_for(row.segments, device),
        rows_M=rows,
        targets_M=targets,
        place_M=place,
        shape=(len(samples), T),
        media=None if vision is None else vision.row_media(_shown(branches, row), device),
        routing=_routing(samples, branches, row, device),
        tokens=row.length,
        tokens_apart=sum(len(branch.ids) for branch in branches),
    )


class RowSize:
    """Counts the tokens of a packed row, at most, as samples of one prompt join it."""

    def __init__(self, share_prefix: bool) -> None:
        self._share_prefix = share_prefix
        self._prompt: Prompt | None = None
        self._tokens = 0  # of samples that only share their prompt
        self._tree: PrefixTree | None = None  # of samples with several branches
        self._branches = Branches()

    def add(self, sample: Sample) -> int:
        """Add a sample; return the tokens of all."""
        if len(sample.branches) > 1:
            for branch in self._branches.of([sample]):
                if self._share_prefix:
                    self._add_to_tree(branch)
                else:
                    self._tokens += len(branch.ids)
        else:
            shared = self._share_prefix and sample.prompt is self._prompt
            self._tokens += len(sample.ids) + (0 if shared else len(sample.prompt.ids))
            self._prompt = sample.prompt
        return self._tokens + (0 if self._tree is None else self._tree.size)

    def _add_to_tree(self, branch: Branch) -> None:
        if self._tree is None:
            from whet.learn.prefix_tree import PrefixTree

            self._tree = PrefixTree()
        self._tree.add(branch.keys)


def _routing(
    samples: Sequence[Sample], branches: list[Branch], row: _Row, device: torch.device | str
) -> Routing | None:
    """Return the recorded routing of the row's tokens; those that samples share take that of the first that has any."""
    alone = Counter(branch.row for branch in branches)
    recorded = [
        (places, samples[branch.row].routing)
        for branch, places in zip(branches, row.places)
        if samples[branch.row].routing is not None and alone[branch.row] == 1
    ]
    if not recorded:
        return None
    like = recorded[0][1]
    routing_NLK = np.full((row.length, *like.shape[1:]), np.iinfo(like.dtype).max, dtype=like.dtype)
    for places, routing in reversed(recorded):
        own = routing[: len(places)]  # an episode may end with tokens that the sampler never read
        routing_NLK[places[: len(own)]] = own
    from whet.model.routing import replay_of  # models without experts need none of it

    return replay_of(routing_NLK, device)


class _Positions:
    """Positions of the tokens of branches; the model's own rule is asked once for each prompt with images."""

    def __init__(self, vision: Vision | None) -> None:
        self._vision = vision
        self._known: dict[int, tuple[np.ndarray, int]] = {}  # by id() of the prompt

    def __call__(self, branch: Branch) -> np.ndarray:
        """Return (axes, L), or (1, L) where tokens are counted."""
        L, vision, prompt = len(branch.ids), self._vision, branch.prompt
        if vision is not None and branch.media_at is not None:  # images inside move all that follows
            return vision.positions(_whole(branch))[0][:, :L]
        if vision is None or prompt is None or prompt.media is None:
            return np.arange(L)[None]
        if id(prompt) not in self._known:
            self._known[id(prompt)] = vision.positions(prompt)
        own, first = self._known[id(prompt)]
        behind = np.arange(first, first + L - own.shape[1])
        return np.concatenate([own, np.broadcast_to(behind, (len(own), len(behind)))], axis=1)


def _whole(branch: Branch) -> Prompt:
    """Return prompt and response as one prompt, for the positions of its tokens."""
    from whet.model.media import join_media

    ids = [token for segment in branch.segments for token in segment.ids]
    if branch.prompt is None:
        return Prompt("", ids, "", media=branch.response_media)
    media = join_media([branch.prompt.media, branch.response_media])
    return replace(branch.prompt, ids=branch.prompt.ids + ids, media=media)


def _shown(branches: list[Branch], row: _Row) -> list[tuple[int, Prompt]]:
    """Return where prompts and responses with images lie, in the order of the row, in which images are read."""
    found: dict[int, Prompt] = {}
    for branch, places in zip(branches, row.places):
        if branch.prompt is not None and branch.prompt.media is not None:
            found[int(places[0])] = branch.prompt
        if (at := branch.media_at) is not None:
            found[int(places[at])] = Prompt("", branch.ids[at:].tolist(), "", media=branch.response_media)
    return sorted(found.items())


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def to_device(device: torch.device | str, *arrays: np.ndarray) -> list[Tensor]:
    """Copy flat arrays of one dtype to a device in one transfer, for which the host does not wait on a GPU."""
    joined = torch.from_numpy(np.concatenate(arrays))
    if torch.device(device).type == "cuda":
        joined = joined.pin_memory().to(device, non_blocking=True)
    return list(joined.split([len(array) for array in arrays]))


def _flat(rows: Iterable[Sequence[float]], count: int, dtype: type = np.int64) -> np.ndarray:
    """Concatenate ragged rows of `count` numbers in all."""
    return np.fromiter(chain.from_iterable(rows), dtype=dtype, count=count)


def pad(rows: Sequence[Sequence[float]], dtype: torch.dtype = torch.float32) -> Tensor:
    """Return ragged rows as (B, T), zeros at the end."""
    lengths = np.array([len(row) for row in rows])
    padded = np.zeros((len(rows), int(lengths.max())))
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = _flat(rows, int(lengths.sum()), np.float64)
    return torch.from_numpy(padded).to(dtype)
