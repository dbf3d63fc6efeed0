"""Five hundred rows that are wrong in some way end in messages: no crash, no hang, no image dropped in silence."""

from __future__ import annotations

import base64
import io
import random
import time

import pytest
from data.test_images import png_header
from PIL import Image

from whet.config.schema.data import DataConfig
from whet.data.dataset import BadRow, PromptDataset

KINDS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")


def picture(rng: random.Random, kind: str) -> bytes:
    size = (rng.randint(30, 90), rng.randint(30, 90))
    file = io.BytesIO()
    Image.frombytes("RGB", size, rng.randbytes(3 * size[0] * size[1])).save(file, kind)
    return file.getvalue()


def url(data: bytes) -> str:
    return "data:image/any;base64," + base64.b64encode(data).decode()


def nonsense(rng: random.Random) -> object:
    return rng.choice(
        [None, 0, -1.5, True, "", " ", "no/such/file.png", "/", ".", "\0", "data:", "data:;base64,", "ftp://x/y.png",
         "x" * 3000, "A" * 3000, {}, {"bytes": 3}, {"path": None}, {"path": []}, {"url": {"url": {}}}, [], [[]], [None],
         {"frames": 3}, "😀.png", "../../..", "[", '["', {"type": "image"}]
    )  # fmt: skip


def damaged(rng: random.Random) -> bytes:
    """A picture cut short, or with bytes changed, or a header that lies: now and then it still decodes."""
    data = bytearray(picture(rng, rng.choice(KINDS)))
    how = rng.randrange(4)
    if how == 0:
        return bytes(data[: rng.randrange(1, len(data))])
    if how == 1:
        for _ in range(rng.randrange(1, 40)):
            data[rng.randrange(min(len(data), 200))] = rng.randrange(256)
        return bytes(data)
    if how == 2:
        return rng.randbytes(rng.randrange(1, 400))
    side = rng.choice([0, 1, 2**15, 2**20, 2**31 - 1])
    return png_header(side, rng.choice([1, side, 30]))


def malformed(rng: random.Random) -> dict:
    """A row that cannot become a prompt, or not for certain."""
    good = url(picture(rng, "PNG"))
    match rng.randrange(6):
        case 0:  # more or fewer places than images
            places, images = rng.sample(range(4), 2)
            return {"prompt": "one " + "<image> " * places, "images": [good] * images, "bad": True}
        case 1:
            return {"prompt": "<image> ?", "images": [nonsense(rng)], "bad": True}
        case 2:
            return {"prompt": "<image><image>", "images": [good, url(damaged(rng))]}
        case 3:
            return {"prompt": "<video> ?", "videos": [rng.choice([nonsense(rng), [nonsense(rng)], good])], "bad": True}
        case 4:
            return {"prompt": "<video> ?", "videos": [[good, url(damaged(rng))]]}
        case _:
            part = {"type": rng.choice(["image", "image_url", "video"]), "image": nonsense(rng)}
            content = [part, {"type": "text", "text": rng.choice(["one", "<image>", "<|image_pad|>"])}]
            return {
                "prompt": [{"role": "user", "content": content}],
                "images": rng.choice([[], [good] * 3]),
                "bad": True,
            }


@pytest.mark.parametrize("check_media", ["header", "full"])
def test_malformed_rows(check_media, jsonl, seeing_tokenizer, processor_of):
    rng = random.Random(7)
    rows = [malformed(rng) for _ in range(500)]
    for index in range(0, 500, 25):
        rows.insert(index, {"prompt": "<image> ?", "images": [url(picture(rng, rng.choice(KINDS)))], "bad": False})
    path = jsonl([row | {"answer": index} for index, row in enumerate(rows)])
    config = DataConfig(on_bad_media="skip", check_media=check_media, min_pixels=None, max_pixels=90 * 90)
    started = time.process_time()
    data = PromptDataset(str(path), config, seeing_tokenizer, processor=processor_of())
    assert len(data) + len(data.bad_rows) == data.rows_read == 520
    assert all(reason.startswith("train.jsonl:") and len(reason) < 800 for reason in data.bad_rows)
    kept, late = {}, []
    for index in range(len(data)):
        try:
            (prompt,) = data.take([index])
        except BadRow as error:
            assert check_media == "header", "decoding everything first leaves nothing to fail later"
            late.append(str(error))
            continue
        kept[prompt.answer] = prompt
        media = prompt.media
        assert prompt.text.count("<|image_pad|>") == len(media.images) == len(rows[prompt.answer].get("images") or [])
        assert prompt.text.count("<|video_pad|>") == len(media.videos) == len(rows[prompt.answer].get("videos") or [])
        assert len(prompt.ids) == data.lengths[index]
    assert all(reason.startswith("train.jsonl:") for reason in late)
    for index, row in enumerate(rows):
        if "bad" in row:
            assert (index in kept) is not row["bad"]
    assert time.process_time() - started < 60
