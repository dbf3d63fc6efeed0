"""Images in chats, for a model that sees."""

from __future__ import annotations

import base64
import io
import json
import struct
import zlib
from pathlib import Path

import pytest
import torch
from data.conftest import MARKS, SEEING_CHAT, build_tokenizer
from model.tiny_vision import vision_config
from PIL import Image
from serving.serving import NAME, Server, running
from transformers import AutoModelForImageTextToText

PATCH = 14


@pytest.fixture(scope="module")
def seeing(tmp_path_factory):
    folder: Path = tmp_path_factory.mktemp("seeing")
    tokenizer = build_tokenizer(SEEING_CHAT)
    tokenizer.add_special_tokens({"additional_special_tokens": list(MARKS)})
    config = vision_config("qwen2_5_vl")
    start, end, config.image_token_id, config.video_token_id = tokenizer.convert_tokens_to_ids(list(MARKS))
    config.vision_start_token_id, config.vision_end_token_id = start, end
    torch.manual_seed(0)
    AutoModelForImageTextToText.from_config(config, dtype=torch.float32).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    settings = {
        "image_processor_type": "Qwen2VLImageProcessorFast",
        "patch_size": PATCH,
        "merge_size": 2,
        "temporal_patch_size": 2,
        "size": {"shortest_edge": (2 * PATCH) ** 2, "longest_edge": 400 * (2 * PATCH) ** 2},
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    with running(folder, "data.min_pixels=784", "worker.rollout.limit_images=2") as server:
        yield server


def _url(colour: str, size: tuple[int, int] = (56, 84)) -> str:
    data = io.BytesIO()
    Image.new("RGB", size, colour).save(data, "PNG")
    return "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()


def _ask(server: Server, *urls: str, text: str = "what is", **options):
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    messages = [{"role": "user", "content": [*parts, {"type": "text", "text": text}]}]
    body = {"model": NAME, "messages": messages, "max_tokens": 4, "temperature": 0, "logprobs": True} | options
    return server.post("/v1/chat/completions", body | {"return_token_ids": True})


def test_an_image_takes_its_tokens_and_changes_the_answer(seeing):
    red, blue = (_ask(seeing, _url(colour)).json() for colour in ("red", "blue"))
    image = seeing.service.backend.model.config.image_token_id
    assert red["prompt_token_ids"].count(image) == (56 // 28) * (84 // 28)
    chances = [each["choices"][0]["logprobs"]["content"][0]["logprob"] for each in (red, blue)]
    assert abs(chances[0] - chances[1]) > 1e-5
    assert _ask(seeing, _url("red")).json()["choices"][0]["token_ids"] == red["choices"][0]["token_ids"]
    two = _ask(seeing, _url("red"), _url("blue", (28, 28))).json()
    assert two["prompt_token_ids"].count(image) == 6 + 1


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("data:image/png;base64,AAAA", "image 1"),
        ("data:image/png;base64,", "image 1"),
        ("data:text/plain,hello", "base64"),
        ("https://example.org/a.png", "messages"),
        ("/etc/passwd", "messages"),
    ],
)
def test_what_is_no_image_is_refused(seeing, url, words):
    answer = _ask(seeing, url)
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]


def test_too_many_images_and_places_without_one_are_refused(seeing):
    assert "limit_images" in _ask(seeing, *[_url("red")] * 3).json()["error"]["message"]
    assert _ask(seeing, text="<image> what").status_code == 400
    assert _ask(seeing, text="<|image_pad|> what").status_code == 400
    assert _ask(seeing, text="what is").status_code == 200


def _data_url(data: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def _saved(image: Image.Image, kind: str, **options) -> bytes:
    data = io.BytesIO()
    image.save(data, kind, **options)
    return data.getvalue()


def _png_of(width: int, height: int) -> bytes:
    """A small PNG whose header claims other sizes."""
    data = _saved(Image.new("1", (8, 8)), "PNG")
    header = data[12:16] + struct.pack(">II", width, height) + data[24:29]
    return data[:12] + header + struct.pack(">I", zlib.crc32(header)) + data[33:]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (_png_of(6000, 6000), "serve.max_pixels"),
        (_png_of(2**31 - 1, 2**31 - 1), "image 1"),
        (_png_of(0, 5), "image 1"),
        (_saved(Image.new("L", (5, 5)), "GIF", save_all=True, append_images=[Image.new("L", (5, 5), 200)]), "frames"),
        (_saved(Image.new("RGB", (5, 5)), "TIFF"), "PNG, JPEG"),
        (_saved(Image.new("RGB", (64, 64)), "JPEG") + b"\xff\xda" * 200, "scans"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "PNG, JPEG"),
    ],
    ids=["pixels", "bomb", "empty", "animated", "tiff", "scans", "postscript"],
)
def test_images_that_would_cost_much_are_refused_from_their_headers(seeing, data, words):
    answer = _ask(seeing, _data_url(data))
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]


def test_pixels_and_images_of_a_request_are_counted_together(seeing):
    half = _saved(Image.new("1", (4100, 4100)), "PNG")
    assert "max_pixels" in _ask(seeing, _data_url(half), _data_url(half)).json()["error"]["message"]
    assert "max_images" in _ask(seeing, *[_url("red")] * 17).json()["error"]["message"]


def test_an_image_with_more_tokens_than_the_model_reads_is_not_decoded(seeing, monkeypatch):
    def never(*_):
        raise AssertionError("decoded")

    monkeypatch.setattr(type(seeing.service.maker._media), "_decode", never)
    answer = _ask(seeing, _url("red"), text="the " * 700)
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert seeing.service.pixels.free == 2 * seeing.service.config.serve.max_pixels
