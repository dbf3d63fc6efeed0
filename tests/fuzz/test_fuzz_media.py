"""Damaged images and videos end in a `MediaError` with the reason, or are decoded to RGB."""

from __future__ import annotations

import base64
import io
import os
import random
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from data.test_images import png_header
from fuzz.cases import cases
from fuzz.watched import message_of
from PIL import Image

from whet.data.images import MOST_PIXELS, MediaError, decode, open_image
from whet.data.videos import open_video
from whet.errors import UserError

STILL = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "ICO", "TGA", "JPEG2000")
MODES = ("RGB", "RGBA", "L", "P", "1", "CMYK", "I;16", "LA", "F", "I")
SOURCES: tuple[Any, ...] = (
    None, 0, 1.5, True, "", " ", "\0", "x" * 5000, "A" * 5000, "/", ".", "~nobody/x.png", "/dev/zero", "/dev/null",
    "😀.png",
    "data:", "data:,", "data:;base64,", "data:;base64,!!!", "data:image/png;base64,AAAA", "file://[", "file:///",
    "file://",
    "http://x/y.png", "ftp://", "\ud800", "[", {}, {"bytes": None}, {"bytes": b""}, {"bytes": "x"}, {"path": 3},
    {"path": []},
    {"url": {"url": {"url": "x"}}}, [], [[]], {"frames": []}, {"frames": [None], "fps": 0}, {"frames": "x"}, b"",
    b"\0" * 64,
    b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"%PDF-1.4", b"%!PS-Adobe-3.0 EPSF-3.0\n", b"GIF89a",
    b"RIFF....WEBP", b"BM",
    {"frames": ["a", "b"], "fps": float("nan")}, {"frames": [b"x"], "fps": 1e-300}, {"frames": [b"x"], "fps": "x"},
)  # fmt: skip


def picture(rng: random.Random) -> bytes:
    image = Image.frombytes("RGB", (32, 24), rng.randbytes(3 * 32 * 24))
    file = io.BytesIO()
    try:
        mode = rng.choice(MODES)
        (image.convert("L").convert(mode) if mode in ("I", "F", "I;16") else image.convert(mode)).save(
            file, rng.choice(STILL)
        )
    except (OSError, ValueError, KeyError):  # not every format has every mode
        image.save(file, "PNG")
    return file.getvalue()


def animation(rng: random.Random) -> bytes:
    frames = [Image.frombytes("RGB", (16, 12), rng.randbytes(3 * 16 * 12)) for _ in range(4)]
    file = io.BytesIO()
    frames[0].save(
        file, rng.choice(("GIF", "WEBP", "PNG", "TIFF")), save_all=True, append_images=frames[1:], duration=50
    )
    return file.getvalue()


def damaged(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 3, 10))):
        at = rng.randrange(min(len(changed), rng.choice((64, 10**6))))
        match rng.randrange(5):
            case 0:
                changed[at] = rng.randrange(256)
            case 1:
                changed[at : at + 4] = rng.choice(
                    (b"\xff\xff\xff\x7f", b"\xff" * 4, b"\0" * 4, struct.pack(">I", 60_000))
                )
            case 2:
                del changed[at : at + rng.randrange(1, 40)]
            case 3:
                changed = changed[: at + 1]
            case 4:
                changed[at:at] = rng.randbytes(rng.randrange(1, 30))
        changed = changed or bytearray(b"x")
    return bytes(changed)


def source(rng: random.Random, folder: Path) -> Any:
    if rng.random() < 0.15:
        return rng.choice(SOURCES)
    data = damaged(rng.choice((picture, picture, animation))(rng), rng)
    match rng.randrange(4):
        case 0:
            return data
        case 1:
            return {"bytes": data, "path": None}
        case 2:
            return "data:image/any;base64," + base64.b64encode(data).decode()
    path = folder / f"x{rng.choice(('.png', '.jpg', '.gif', '.webp', '.tif', '', '.svg', '.mp4'))}"
    path.write_bytes(data)
    return str(path)


def look(given: Any, moving: bool) -> None:
    """Decode an image or a video; what is wrong with it becomes a `UserError`, as it does in a row."""
    try:
        if moving:
            frames = open_video(given, None, 2.0).read()
        else:
            frames = [decode(open_image(given, None))]
    except MediaError as error:
        raise UserError(str(error)) from error
    except (ValueError, OSError, MemoryError) as error:  # which `MediaReader` names with the row as well
        raise UserError(f"cannot be used ({error})") from error
    assert all(frame.mode == "RGB" for frame in frames)


def test_damaged_media_are_refused_or_decoded(tmp_path: Path):
    seen = [0, 0]
    for seed in range(cases(100, 300)):
        rng = random.Random(seed)
        given, moving = source(rng, tmp_path), rng.random() < 0.35
        try:
            seen[message_of(lambda g=given, m=moving: look(g, m)) is None] += 1
        except BaseException as error:
            error.add_note(f"seed {seed}: {'video' if moving else 'image'} {given!r:.300}")
            raise
    assert min(seen) > 0, "everything was refused, or nothing"


@pytest.mark.parametrize("given", SOURCES, ids=lambda given: repr(given)[:30])
@pytest.mark.parametrize("moving", [False, True])
def test_things_that_are_no_media(given: Any, moving: bool):
    assert message_of(lambda: look(given, moving))


@pytest.mark.parametrize("moving", [False, True])
def test_pipes_are_not_read(moving: bool, tmp_path: Path):
    for suffix in (".png", ".gif", ".mp4"):
        os.mkfifo(tmp_path / f"pipe{suffix}")
        assert "no ordinary file" in (message_of(lambda s=suffix: look(str(tmp_path / f"pipe{s}"), moving)) or "")


def test_bombs_are_refused_by_their_headers():
    assert "pixels" in (message_of(lambda: look(png_header(50_000, 50_000), False)) or "")
    assert "pixels" in (message_of(lambda: look({"frames": [png_header(9_000, 9_000)] * 100}, True)) or "")
    assert MOST_PIXELS < 50_000**2


def test_an_animation_that_claims_many_large_frames():
    file = io.BytesIO()
    frames = [Image.new("L", (1500, 1500), shade) for shade in (0, 255, 0)]
    frames[0].save(file, "PNG", save_all=True, append_images=frames[1:])
    data = bytearray(file.getvalue())
    at = data.index(b"acTL")
    data[at + 4 : at + 8] = struct.pack(">I", 10**6)
    data[at + 12 : at + 16] = struct.pack(">I", zlib.crc32(data[at : at + 12]))
    assert "1000000 frames" in (message_of(lambda: look(bytes(data), True)) or "")
