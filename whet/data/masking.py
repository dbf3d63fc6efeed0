"""Images with less to see: what a token's dependency on images is measured against.

Images keep their size, so that a masked prompt has the same tokens at the same positions. What is drawn at random is a
function of the seed alone. The strengths are those of VPPO (Huang et al., 2025).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageFilter

from whet.types import Media

SQUARE = 14  # pixels; counted from the top-left corner of the image as the model sees it
NOISE = 189.0  # standard deviation, of 255
BLUR = 6.0  # radius in pixels
GREY = 128

# images and videos -> the tensors that the model's processor makes of their pixels
Pixels = Callable[[Sequence[Any], Sequence[Sequence[Any]]], dict[str, Any]]


def seed_of(*parts: object) -> int:
    """A number that depends on all parts, and is the same in every process."""
    return zlib.crc32("\0".join(map(str, parts)).encode())


def masked(media: Media, pixels_of: Pixels, kind: str, ratio: float, seed: int, videos: bool = True) -> Media:
    """Media of the same sizes with every image, and every video unless told otherwise, masked by a draw of its own."""
    images = [mask_image(image, kind, ratio, seed_of(seed, "image", i)) for i, image in enumerate(media.images)]
    clips = media.videos
    if videos:
        clips = [mask_frames(frames, kind, ratio, seed_of(seed, "video", i)) for i, frames in enumerate(clips)]
    return Media(images, clips, media.inputs | pixels_of(images, clips))


def mask_frames(frames: list[Any], kind: str, ratio: float, seed: int) -> list[Any]:
    """Frames of one size, all with the same squares or noise: what one hides, no other shows."""
    return [_MASKS[kind](frame.convert("RGB"), ratio, np.random.default_rng(seed)) for frame in frames]


def mask_image(image: Any, kind: str, ratio: float, seed: int) -> Any:
    """An image of the same size, masked in one of the ways of `algorithm.perception_mask`."""
    return mask_frames([image], kind, ratio, seed)[0]


def _patches(image: Image.Image, ratio: float, rng: np.random.Generator) -> Image.Image:
    """Squares from the top-left corner, each black with probability `ratio`; those at the edges may be cut."""
    pixels = np.array(image)
    height, width = pixels.shape[:2]
    shown = (rng.random((-(-height // SQUARE), -(-width // SQUARE))) >= ratio).astype(np.uint8)
    pixels *= shown.repeat(SQUARE, axis=0)[:height].repeat(SQUARE, axis=1)[:, :width, None]
    return Image.fromarray(pixels)


def _noise(image: Image.Image, ratio: float, rng: np.random.Generator) -> Image.Image:
    pixels = np.asarray(image, dtype=np.float32)
    noisy = pixels + NOISE * rng.standard_normal(pixels.shape, dtype=np.float32)
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def _blur(image: Image.Image, ratio: float, rng: np.random.Generator) -> Image.Image:
    return image.filter(ImageFilter.GaussianBlur(BLUR))


def _filled(level: int) -> Callable[[Image.Image, float, np.random.Generator], Image.Image]:
    return lambda image, ratio, rng: Image.new("RGB", image.size, (level, level, level))


_MASKS: dict[str, Callable[[Image.Image, float, np.random.Generator], Image.Image]] = {
    "patches": _patches,
    "noise": _noise,
    "blur": _blur,
    "grey": _filled(GREY),
    "blank": _filled(0),
}
