"""Images and videos on their way to vLLM: the learner's own pixel values, and where each of them lies in the prompt.

vLLM is given what its own processor would have made of a prompt, so that it neither resizes an image nor counts its
tokens: it sees the very numbers that the learner trains on. They travel once for all samples of a prompt.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PretrainedConfig

from whet.errors import UserError
from whet.rollout.engines.vllm.child.whet_vllm_wire import buckets, fill
from whet.types import Prompt

_KINDS = (("image", "pixel_values", "image_grid_thw"), ("video", "pixel_values_videos", "video_grid_thw"))
_ONE_BUCKET = 1 << 62


@dataclass(frozen=True, slots=True)
class Shown:
    """Media of one prompt: tensors, and the positions of images and videos among its tokens."""

    tensors: list[tuple[str, Tensor]]
    places: dict[str, list[list[Any]]]  # by kind; see `MediaWriter`

    def frame(self) -> tuple[dict[str, Any], memoryview]:
        """A header and the bytes behind it; made when they are sent, because a batch of them takes gigabytes."""
        ((table, kept, size),) = buckets(self.tensors, _ONE_BUCKET)
        body = fill(torch.empty(size, dtype=torch.uint8), table, kept).numpy().data
        digest = hashlib.sha256(body)
        digest.update(repr(table).encode())
        return {"tensors": table, "places": self.places, "digest": digest.hexdigest()}, body


class MediaWriter:
    """Lays out the media of prompts for one model of the Qwen-VL kind, whose images are grids of patches."""

    def __init__(self, config: PretrainedConfig, dtype: str) -> None:
        """Pixel values are sent in vLLM's `dtype`, in which its vision tower reads them anyway."""
        self._dtype: torch.dtype = getattr(torch, dtype)
        self._reads = getattr(config, "vision_config", None) is not None
        self._ids = {kind: getattr(config, f"{kind}_token_id", None) for kind, _, _ in _KINDS}
        vision = getattr(config, "vision_config", None)
        self._merge = int(getattr(vision, "spatial_merge_size", 1))
        self._per_second = float(getattr(vision, "tokens_per_second", 1.0))
        # Qwen3-VL shows the frames of a video one by one, the time of each between them as text.
        self._frames_apart = config.model_type.startswith("qwen3")

    def write(self, prompt: Prompt) -> Shown | None:
        """Return the media of a prompt; None for text, UserError where vLLM could not read it."""
        media = prompt.media
        if media is None or not (media.images or media.videos or media.inputs):
            return None
        grids = {kind: media.inputs.get(grid) for kind, _, grid in _KINDS}
        if not self._reads or all(each is None for each in grids.values()):
            raise UserError(
                f"{prompt.uid}: worker.rollout.name=vllm takes images and videos for models of the Qwen-VL kind only; "
                "set it to native or hf"
            )
        places = {kind: self._places(prompt, kind, grid) for kind, grid in grids.items()}
        if places["video"] and not self._frames_apart:
            self._check_times(prompt, media.inputs)
        pixels = {name for _, name, _ in _KINDS}
        tensors = [(name, each.to(self._dtype) if name in pixels else each) for name, each in media.inputs.items()]
        return Shown(tensors, {kind: each for kind, each in places.items() if each})

    def _check_times(self, prompt: Prompt, inputs: dict[str, Any]) -> None:
        """Refuse a video behind which vLLM would count on from another position than transformers.

        Text goes on behind the width of a video in transformers, behind its last moment in vLLM where that is later.
        """
        grids = inputs["video_grid_thw"]
        seconds = inputs.get("second_per_grid_ts", torch.ones(len(grids)))
        for (times, *sides), each in zip(grids.tolist(), seconds):
            ours = (torch.arange(times) * (each * self._per_second)).long()
            theirs = (torch.arange(times).double() * (float(each) * self._per_second)).long()
            if not torch.equal(ours, theirs) or int(ours[-1]) >= max(sides) // self._merge:
                raise UserError(
                    f"{prompt.uid}: vLLM and transformers give tokens behind a video as long as this one different "
                    "positions; show fewer frames of a larger size, or set worker.rollout.name=native"
                )

    def _places(self, prompt: Prompt, kind: str, grids: Tensor | None) -> list[list[Any]]:
        """[first token, tokens, which of them stand for features] of every image, or video; None is all of them."""
        token = self._ids[kind]
        found = [] if token is None else [at for at, each in enumerate(prompt.ids) if each == token]
        counts = [] if grids is None else (grids.prod(-1) // self._merge**2).tolist()
        if len(found) != sum(counts):
            raise UserError(
                f"{prompt.uid}: {len(found)} {kind} tokens in the prompt, but the model would read {sum(counts)} from "
                f"its {kind}s: is this the model's own processor?"
            )
        places: list[list[Any]] = []
        for count in counts:
            mine, found = found[:count], found[count:]
            places.append(self._place(prompt.ids, kind, mine))
        return places

    def _place(self, ids: Sequence[int], kind: str, mine: list[int]) -> list[Any]:
        if kind == "video" and self._frames_apart:
            first, last = mine[0] - 1, mine[-1] + 1  # vLLM looks for the marks around each frame
            return [first, last - first + 1, [int(each == self._ids[kind]) for each in ids[first : last + 1]]]
        return [mine[0], len(mine), None]
