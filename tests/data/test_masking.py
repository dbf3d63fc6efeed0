"""Masked images: what is hidden, how it is drawn, and that everything keeps its size."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import Qwen2VLImageProcessorPil

from whet.config.schema.algorithm import PERCEPTION_MASKS
from whet.data.masking import SQUARE, mask_frames, mask_image, masked, seed_of
from whet.types import Media


def picture(width: int, height: int, seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(1, 256, (height, width, 3), dtype=np.uint8)  # nothing is black
    return Image.fromarray(pixels)


def test_squares_from_the_corner_are_black_or_untouched() -> None:
    image = picture(14 * 40 + 5, 14 * 30 + 9)
    before, after = np.asarray(image), np.asarray(mask_image(image, "patches", 0.5, seed=3))
    black = 0
    for y in range(0, before.shape[0], SQUARE):
        for x in range(0, before.shape[1], SQUARE):
            old, new = (each[y : y + SQUARE, x : x + SQUARE] for each in (before, after))
            assert not new.any() or np.array_equal(new, old)
            black += not new.any()
    assert 0.45 < black / (41 * 31) < 0.55
    assert np.array_equal(np.asarray(mask_image(image, "patches", 0.0, seed=3)), before)
    assert not np.asarray(mask_image(image, "patches", 1.0, seed=3)).any()


@pytest.mark.parametrize("kind", PERCEPTION_MASKS)
def test_a_mask_is_a_function_of_its_seed_and_keeps_the_size(kind: str) -> None:
    image = picture(70, 42)
    one, again, other = (np.asarray(mask_image(image, kind, 0.5, seed)) for seed in (1, 1, 2))
    assert one.shape == (42, 70, 3)
    assert np.array_equal(one, again)
    assert np.array_equal(one, other) == (kind in ("blur", "grey", "blank"))
    assert np.array_equal(np.asarray(image), np.asarray(picture(70, 42)))  # the image itself is as it was


def test_what_each_kind_leaves_to_see() -> None:
    image = picture(280, 280)
    assert (np.asarray(mask_image(image, "grey", 0.5, 0)) == 128).all()
    assert not np.asarray(mask_image(image, "blank", 0.5, 0)).any()
    assert np.asarray(mask_image(image, "blur", 0.5, 0), dtype=float).std() < 0.1 * np.asarray(image).std()
    level = Image.new("RGB", (280, 280), (128, 128, 128))
    noisy = np.asarray(mask_image(level, "noise", 0.5, 0), dtype=float)
    assert abs(noisy.mean() - 128) < 2
    # of a normal distribution of standard deviation 189, what lies beyond 128 below or 127 above is cut: a quarter each
    assert 0.45 < ((noisy == 0) | (noisy == 255)).mean() < 0.55


def test_frames_of_a_video_hide_the_same_squares() -> None:
    frames = [picture(70, 56, seed) for seed in range(3)]
    first, *others = ((np.asarray(f) == 0).all(axis=-1) for f in mask_frames(frames, "patches", 0.5, seed=4))
    assert 0 < first.mean() < 1
    assert all(np.array_equal(first, other) for other in others)


def test_seeds_depend_on_every_part() -> None:
    seeds = [
        seed_of(*parts) for parts in ((1, 2, "a"), (1, 2, "b"), (1, 3, "a"), (2, 2, "a"), (12, "a"), (1, 2, "a", 0))
    ]
    assert len(set(seeds)) == len(seeds)
    assert seed_of(1, 7, "train.jsonl:17") == 2796730509  # in every process and version


def test_masked_media_have_other_pixels_in_the_same_grids() -> None:
    processor = Qwen2VLImageProcessorPil(patch_size=14, merge_size=2, temporal_patch_size=2)

    def pixels_of(images, videos):
        made = processor(images=list(images), do_resize=False, return_tensors="pt")
        return {"pixel_values": made["pixel_values"], "image_grid_thw": made["image_grid_thw"]}

    images = [picture(56, 84), picture(112, 56)]
    media = Media(images, [[picture(56, 56)]], pixels_of(images, []) | {"second_per_grid_ts": torch.tensor([1.0])})
    ours = masked(media, pixels_of, "patches", 0.5, seed=1, videos=False)
    assert torch.equal(ours.inputs["image_grid_thw"], media.inputs["image_grid_thw"])
    assert ours.inputs["second_per_grid_ts"] is media.inputs["second_per_grid_ts"]
    assert ours.videos is media.videos
    # Squares are the model's own patches here: each is as it was, or that of a black image.
    black = pixels_of([Image.new("RGB", image.size) for image in images], [])["pixel_values"]
    same = (ours.inputs["pixel_values"] == media.inputs["pixel_values"]).all(dim=1)
    dark = (ours.inputs["pixel_values"] == black).all(dim=1)
    assert bool((same ^ dark).all())
    assert 0.2 < float(dark.float().mean()) < 0.8
    assert [image.size for image in ours.images] == [image.size for image in images]
    again = masked(media, pixels_of, "patches", 0.5, seed=1)
    assert torch.equal(again.inputs["pixel_values"], ours.inputs["pixel_values"])
    assert again.videos[0][0] is not media.videos[0][0]
