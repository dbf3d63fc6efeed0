"""Groups that wait in a checkpoint: routing and images of their samples come back to the last bit."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from whet.training.groups import group_from_record, group_record
from whet.types import Group, Media, Prompt, Sample, Segment


class OneRow:
    """A loader that knows one prompt."""

    def prompts(self, rows: list[int]) -> list[Prompt]:
        return [Prompt("a", [1, 2], "") for _ in rows]


@pytest.mark.parametrize("dtype", [np.uint8, np.int16])
def test_routing_survives_a_checkpoint(dtype: type) -> None:
    routing = np.arange(4 * 3 * 2, dtype=dtype).reshape(4, 3, 2)[:, ::-1]
    (prompt,) = OneRow().prompts([0])
    recorded, plain = (Sample.written(prompt, [5, 6, 7], [-1.0, -0.5, -2.0], "stop") for _ in range(2))
    recorded.routing = routing
    loader: Any = OneRow()
    group = group_from_record(json.loads(json.dumps(group_record(Group(0, [recorded, plain])))), loader)
    assert group.samples == [recorded, plain]
    assert group.samples[1].routing is None
    assert group.samples[0].routing.dtype == dtype
    assert np.array_equal(group.samples[0].routing, routing)


class Sees(OneRow):
    """A loader of a model that sees."""

    @staticmethod
    def media(images: list[Any]) -> Media:
        return Media(images, [], {"pixel_values": torch.cat([_pixels(image) for image in images])})


def _pixels(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.asarray(image).astype(np.float32)).flatten()


def test_images_of_episodes_survive_a_checkpoint() -> None:
    first, second, third = (Image.effect_noise((20 + i, 30), 90).convert("RGB") for i in range(3))
    loader: Any = Sees()
    (row,) = loader.prompts([0])
    prompt = Prompt("a", [1, 2, 9], "asked", media=Sees.media([first]))
    segments = [
        Segment([5], log_probs=[-1.0]),
        Segment([9, 9], by_model=False, media=Sees.media([second, third])),
        Segment([6], log_probs=[-2.0]),
        Segment([1, 9], by_model=False, restart=True, media=Sees.media([third])),
        Segment([7], log_probs=[-3.0], reward=0.5),
    ]
    played = Sample(prompt, segments, "stop", end="done")
    single = Sample.written(row, [5], [-1.0], "stop")
    group = group_from_record(json.loads(json.dumps(group_record(Group(0, [played, single])))), loader)
    again, plain = group.samples
    assert plain == single
    assert again.ids == played.ids
    assert [segment.restart for segment in again.segments] == [segment.restart for segment in segments]
    pairs = [(again.prompt.media, prompt.media), *((a.media, b.media) for a, b in zip(again.segments, segments))]
    assert [a is None for a, _ in pairs] == [b is None for _, b in pairs]
    for found, wanted in pairs:
        if found is not None and wanted is not None:
            assert [image.tobytes() for image in found.images] == [image.tobytes() for image in wanted.images]
            assert torch.equal(found.inputs["pixel_values"], wanted.inputs["pixel_values"])
