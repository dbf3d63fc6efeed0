"""What is sent to vLLM of prompts with images and videos."""

from __future__ import annotations

import socket

import pytest
import torch
from model.tiny_vision import END, IMAGE, KINDS, START, VIDEO, mixed_prompts, vision_config, vision_prompt
from transformers import LlamaConfig

from whet.errors import UserError
from whet.rollout.engines.vllm.channel import Channel
from whet.rollout.engines.vllm.child.whet_vllm_wire import receive, unpack
from whet.rollout.engines.vllm.media import MediaWriter
from whet.types import Media, Prompt


@pytest.mark.parametrize("kind", KINDS)
def test_places_are_the_tokens_of_each_image(kind: str) -> None:
    config = vision_config(kind)
    writer = MediaWriter(config, "float32")
    text, _, images, _, _, _ = mixed_prompts(config)
    assert writer.write(text) is None
    shown = writer.write(images)
    assert shown is not None
    (first, one, _), (second, two, _) = shown.places["image"]
    assert (one, two) == (4, 4)
    for at, count in ((first, one), (second, two)):
        assert images.ids[at - 1 : at + count + 1] == [START, *[IMAGE] * count, END]


def test_frames_of_a_video_lie_apart_in_qwen3() -> None:
    config = vision_config("qwen3_vl")
    prompt = vision_prompt(config, videos=[(3, 4, 4)], seed=4)
    shown = MediaWriter(config, "float32").write(prompt)
    assert shown is not None
    ((first, count, seen),) = shown.places["video"]
    inside = prompt.ids[first : first + count]
    assert inside[0] == START
    assert inside[-1] == END
    assert [int(token == VIDEO) for token in inside] == seen
    assert sum(seen) == 12


def test_pixels_travel_once_for_all_samples_of_a_prompt() -> None:
    config = vision_config("qwen2_5_vl")
    writer = MediaWriter(config, "bfloat16")
    text, image = mixed_prompts(config)[:2]
    shown = writer.write(image)
    assert shown is not None
    ours, theirs = socket.socketpair()
    channel = Channel(ours, {}, lambda said: f"ended: {said}")
    assert receive(theirs)[0] == {"arguments": {}}
    requests = [("a", 0, 5), ("b", 1, 6), ("c", 1, 7)]
    channel.submit([text.ids, image.ids], requests, {"temperature": 1.0}, 3, {1: shown})
    first, nothing = receive(theirs)
    assert (first["requests"], first["prompts"][0], len(nothing)) == ([["a", 0, 5]], text.ids, 0)
    second, body = receive(theirs)
    assert (second["requests"], second["prompts"], second["version"]) == ([["b", 0, 6], ["c", 0, 7]], [image.ids], 3)
    got = dict(unpack(second["shown"]["tensors"], torch.frombuffer(body, dtype=torch.uint8)))
    assert image.media is not None
    assert torch.equal(got["pixel_values"], image.media.inputs["pixel_values"].bfloat16())
    assert torch.equal(got["image_grid_thw"], image.media.inputs["image_grid_thw"])
    theirs.close()


def test_other_pixels_have_another_name() -> None:
    config = vision_config("qwen2_5_vl")
    writer = MediaWriter(config, "float32")
    names = set()
    for seed in (2, 2, 3):
        shown = writer.write(vision_prompt(config, images=[(1, 4, 4)], seed=seed))
        assert shown is not None
        names.add(shown.frame()[0]["digest"])
    assert len(names) == 2


def test_prompts_that_vllm_would_read_otherwise_are_named() -> None:
    config = vision_config("qwen2_5_vl")
    writer = MediaWriter(config, "float32")
    good = vision_prompt(config, images=[(1, 4, 4)], seed=1)
    long = vision_prompt(config, videos=[(3, 4, 4)], seed=4)  # 3 moments of 1.5 seconds, 2 tokens wide
    assert writer.write(vision_prompt(config, videos=[(2, 4, 8)], seed=4)) is not None
    for prompt, words in (
        (Prompt("row 7", [*good.ids, IMAGE, 3], "", media=good.media), "row 7: 5 image tokens in the prompt"),
        (Prompt("row 7", [*good.ids, VIDEO, 3], "", media=good.media), "row 7: 1 video tokens in the prompt"),
        (Prompt("row 7", long.ids, "", media=long.media), "row 7: .*behind a video"),
        (Prompt("row 7", [1], "", media=Media(inputs={"pixel_values": torch.ones(1)})), "row 7: .*Qwen-VL kind only"),
    ):
        with pytest.raises(UserError, match=words):
            writer.write(prompt)
    with pytest.raises(UserError, match="Qwen-VL kind only"):
        MediaWriter(LlamaConfig(), "float32").write(good)
