"""Images of any shape as grids of patches, a token for each few of them: Qwen2-VL, Qwen2.5-VL, Qwen3-VL and their kin.

transformers' processors of videos need torchvision, which whet does without: frames go through the image processor,
and what it makes of two following frames is laid together as one patch in time.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from transformers import PretrainedConfig, PreTrainedTokenizerBase

Size = tuple[int, int]  # width, height

VIDEOS = "video_preprocessor_config.json"
LONGEST_TO_SHORTEST = 200  # Qwen-VL's limit of how narrow an image may be
PROBES: tuple[Size, ...] = ((300, 200), (28, 500), (31, 17))


@dataclass(frozen=True, slots=True)
class Clip:
    """A video as it is tokenised: how many frames, their size, and how many of them make a second."""

    frames: int
    size: Size
    fps: float


class GridProcessor:
    """Images of any shape as grids of patches, `merge_size`² patches to a token."""

    chat_template: str | None = None

    def __init__(
        self, images: Any, tokenizer: PreTrainedTokenizerBase, config: PretrainedConfig, videos: str | None = None
    ) -> None:
        """`videos` is the file of the video processor's settings, which others read from a checkpoint."""
        self._images, self._tokenizer, self._videos = images, tokenizer, videos
        self._temporal: int = images.temporal_patch_size
        self._merge: int = images.merge_size
        self._factor: int = images.patch_size * images.merge_size
        self._image_id: int = config.image_token_id
        self._image_token: str = _token(tokenizer, config.image_token_id)
        self._video_id: int | None = getattr(config, "video_token_id", None)
        # Other families number a video's frames in ways of their own.
        reads_videos = self._video_id is not None and config.model_type.startswith(("qwen2", "qwen3"))
        self._video_token = _token(tokenizer, self._video_id) if reads_videos else None
        # Qwen3-VL reads the time of each frame as text; Qwen2.5-VL has it in its positions.
        self._timestamps = config.model_type.startswith("qwen3")
        self._seconds = hasattr(config.vision_config, "tokens_per_second")
        start, end = (getattr(config, f"vision_{name}_token_id", None) for name in ("start", "end"))
        self._around = ("", "") if start is None or end is None else (_token(tokenizer, start), _token(tokenizer, end))
        self.image_place = self._image_token.join(self._around)
        self.video_place = self._video_token.join(self._around) if self._video_token else None
        self.tokens: tuple[str, ...] = (self._image_token,)
        if self._video_token:
            self.tokens += (self._video_token,)

    def agrees(self) -> bool:
        """Return True if sizes computed here equal the image processor's own."""
        grids = self._images(images=[Image.new("RGB", size) for size in PROBES], return_tensors="pt")["image_grid_thw"]
        return all(
            (w * self._images.patch_size, h * self._images.patch_size) == self.target_size(size)
            for (_, h, w), size in zip(grids.tolist(), PROBES)
        )

    def target_size(self, size: Size) -> Size:
        """Whole tokens in both directions, within the processor's pixels, as near the aspect ratio as that allows."""
        width, height = size
        if max(size) > LONGEST_TO_SHORTEST * min(size):
            raise ValueError(f"{width}×{height} pixels: longer than {LONGEST_TO_SHORTEST} times its other side")
        factor, limits = self._factor, self._images.size
        fitted = [round(side / factor) * factor for side in size]
        if fitted[0] * fitted[1] > limits["longest_edge"]:
            shrink = math.sqrt(width * height / limits["longest_edge"])
            fitted = [max(factor, math.floor(side / shrink / factor) * factor) for side in size]
        elif fitted[0] * fitted[1] < limits["shortest_edge"]:
            grow = math.sqrt(limits["shortest_edge"] / (width * height))
            fitted = [math.ceil(side * grow / factor) * factor for side in size]
        return fitted[0], fitted[1]

    def length(self, text: str, sizes: Sequence[Size], clips: Sequence[Clip], special: bool) -> int:
        """Tokens of the text, and those of the grids in their places."""
        places, videos = [self._tokens(size) for size in sizes], self._video_tokens(clips)
        ids = self._encode(self._write(text, len(sizes), clips), special)
        return len(ids) + sum(places) - len(places) + sum(videos) - len(videos)

    def read(
        self, text: str, images: Sequence[Any], videos: Sequence[Sequence[Any]], fps: Sequence[float], special: bool
    ) -> tuple[list[int], dict[str, Any]]:
        """Token ids and the tensors of the vision tower."""
        clips = [Clip(len(frames), frames[0].size, rate) for frames, rate in zip(videos, fps)]
        ids = self._encode(self._write(text, len(images), clips), special)
        counts = {self._image_id: iter([self._tokens(image.size) for image in images])}
        if self._video_id is not None:
            counts[self._video_id] = iter(self._video_tokens(clips))
        expanded: list[int] = []
        for token in ids:
            expanded += [token] * next(counts[token]) if token in counts else [token]
        inputs = self.pixels(images, videos)
        if clips and self._seconds:
            inputs["second_per_grid_ts"] = torch.tensor([self._temporal / clip.fps for clip in clips])
        return expanded, inputs

    def expand(self, ids: Sequence[int], sizes: Sequence[Size]) -> list[int]:
        """Token ids with the place of each image repeated for every token of its grid."""
        match_places(sum(token == self._image_id for token in ids), len(sizes), "image")
        counts = iter([self._tokens(size) for size in sizes])
        expanded: list[int] = []
        for token in ids:
            expanded += [token] * (next(counts) if token == self._image_id else 1)
        return expanded

    def pixels(self, images: Sequence[Any], videos: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """`pixel_values` and `image_grid_thw`, and the same two of videos, where there are any."""
        inputs: dict[str, Any] = {}
        if images:
            inputs["pixel_values"], inputs["image_grid_thw"] = self._patches(images)
        if videos:
            laid = [self._laid_together(frames) for frames in videos]
            inputs["pixel_values_videos"] = torch.cat([patches for patches, _ in laid])
            inputs["video_grid_thw"] = torch.stack([grid for _, grid in laid])
        return inputs

    def save_pretrained(self, folder: Path) -> None:
        """Write the files from which transformers builds the processors of images and of videos."""
        self._images.save_pretrained(folder)
        if self._videos is not None:
            shutil.copyfile(self._videos, folder / VIDEOS)

    def _patches(self, images: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor]:
        made = self._images(images=list(images), do_resize=False, return_tensors="pt")
        return made["pixel_values"], made["image_grid_thw"]

    def _laid_together(self, frames: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """Patches of `temporal_patch_size` following frames as one; a missing frame is the last one again."""
        missing = -len(frames) % self._temporal
        patches, grids = self._patches([*frames, *[frames[-1]] * missing])
        _, height, width = grids[0].tolist()
        side = self._images.patch_size
        # The image processor repeats an image along time: frame k of a patch is taken from the k-th repetition.
        frames_NPCTHW = patches.view(len(grids), height * width, -1, self._temporal, side, side)
        joined = torch.stack([frames_NPCTHW[k :: self._temporal, :, :, k] for k in range(self._temporal)], dim=3)
        times = len(grids) // self._temporal
        return joined.reshape(times * height * width, -1), torch.tensor([times, height, width])

    def _tokens(self, size: Size) -> int:
        return size[0] * size[1] // self._factor**2

    def _video_tokens(self, clips: Sequence[Clip]) -> list[int]:
        """Tokens in every place of a video: one place each, or one for each time it shows."""
        times = [(math.ceil(clip.frames / self._temporal), self._tokens(clip.size)) for clip in clips]
        if self._timestamps:
            return [tokens for count, tokens in times for _ in range(count)]
        return [count * tokens for count, tokens in times]

    def _write(self, text: str, images: int, clips: Sequence[Clip]) -> str:
        """The text with a place for each grid, once it has as many places as there are images and videos."""
        match_places(text.count(self._image_token), images, "image")
        videos = text.count(self._video_token) if self._video_token else 0
        match_places(videos, len(clips), "video")
        if not self._timestamps or self._video_token is None or self.video_place is None:
            return text
        # The markers around a video's place give way to those around each time.
        place = self.video_place if text.count(self.video_place) == videos else self._video_token
        before, *after = text.split(place)
        return before + "".join(self._timed(clip) + rest for clip, rest in zip(clips, after))

    def _timed(self, clip: Clip) -> str:
        times = [frame / clip.fps for frame in range(clip.frames)]
        times += times[-1:] * (-len(times) % self._temporal)
        middles = [(times[i] + times[i + self._temporal - 1]) / 2 for i in range(0, len(times), self._temporal)]
        return "".join(f"<{middle:.1f} seconds>{self.video_place}" for middle in middles)

    def _encode(self, text: str, special: bool) -> list[int]:
        return self._tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"]


def _token(tokenizer: PreTrainedTokenizerBase, number: int | None) -> str:
    token = tokenizer.convert_ids_to_tokens(number) if number is not None else None
    if not isinstance(token, str):
        raise ValueError(f"the tokenizer has no token {number}, which the model's config names as one of images")
    return token


def match_places(places: int, count: int, kind: str) -> None:
    """Refuse a text that has more or fewer places than there are images (or videos)."""
    if places != count:
        plural = "" if places == 1 else "s"
        there = f"{count} {kind}{'' if count == 1 else 's'}"
        raise ValueError(f"the prompt has {places} place{plural} for {kind}s (<{kind}>), and there are {there}")
