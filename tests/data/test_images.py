from __future__ import annotations

import base64
import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from whet.data.columns import MediaError
from whet.data.images import MOST_PIXELS, decode, fitted, open_image

RED = (200, 30, 40)


def encoded(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds next to nothing."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    "form",
    [
        lambda data, path: data,
        lambda data, path: bytearray(data),
        lambda data, path: {"bytes": data},
        lambda data, path: {"bytes": data, "path": "gone.png"},
        lambda data, path: {"bytes": None, "path": str(path)},
        lambda data, path: str(path),
        lambda data, path: path,
        lambda data, path: path.name,
        lambda data, path: path.as_uri(),
        lambda data, path: base64.b64encode(data).decode(),
        lambda data, path: base64.urlsafe_b64encode(data).decode().rstrip("="),
        lambda data, path: base64.encodebytes(data).decode(),
        lambda data, path: "data:image/png;base64," + base64.b64encode(data).decode(),
        lambda data, path: {"url": "data:image/png;base64," + base64.b64encode(data).decode()},
        lambda data, path: {"image_url": {"url": path.as_uri()}},
        lambda data, path: Image.open(path),
    ],
)
def test_every_form_of_an_image(form, tmp_path):
    picture = Image.new("RGB", (9, 5), RED)
    path = tmp_path / "a b.png"
    picture.save(path)
    opened = open_image(form(path.read_bytes(), path), tmp_path)
    assert opened.size == (9, 5)
    image = decode(opened)
    assert image.mode == "RGB"
    assert image.getpixel((3, 3)) == RED


def test_a_name_that_is_valid_base64_too(tmp_path):
    name = "train/0123456789abcdef0123456789abcdef01234567"
    (tmp_path / "train").mkdir()
    (tmp_path / name).write_bytes(encoded(Image.new("RGB", (2, 2))))
    assert open_image(name, tmp_path).size == (2, 2)
    with pytest.raises(MediaError, match=r"not there: .*train/0123"):
        open_image(name + "gone", tmp_path)


def test_opening_reads_a_header_only():
    whole = encoded(Image.fromarray(np.random.default_rng(0).integers(0, 255, (300, 400, 3), dtype=np.uint8)))
    opened = open_image(whole[:200], None)
    assert opened.size == (400, 300)
    with pytest.raises(MediaError, match=r"cannot be decoded \(.*truncated"):
        decode(opened)


def test_modes_become_rgb():
    grey = Image.new("L", (4, 4), 90)
    assert decode(open_image(encoded(grey), None)).getpixel((0, 0)) == (90, 90, 90)
    black_and_white = Image.new("1", (4, 4), 1)
    assert decode(open_image(encoded(black_and_white), None)).getpixel((0, 0)) == (255, 255, 255)
    palette = Image.new("RGB", (4, 4), RED).quantize(4)
    assert decode(open_image(encoded(palette), None)).getpixel((0, 0)) == RED
    cmyk = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    red, green, blue = decode(open_image(encoded(cmyk, "JPEG", quality=95), None)).getpixel((4, 4))
    assert red > 200
    assert max(green, blue) < 60


def test_what_is_transparent_lies_on_white():
    lines = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    lines.putpixel((1, 1), (*RED, 255))
    lines.putpixel((2, 2), (0, 0, 0, 128))
    image = decode(open_image(encoded(lines), None))
    assert image.getpixel((0, 0)) == (255, 255, 255)
    assert image.getpixel((1, 1)) == RED
    assert image.getpixel((2, 2)) == (127, 127, 127)
    palette = Image.new("P", (4, 4), 0)
    palette.putpalette([*RED, 0, 0, 0])
    assert decode(open_image(encoded(palette, transparency=0), None)).getpixel((0, 0)) == (255, 255, 255)
    with_alpha = Image.new("LA", (4, 4), (10, 0))
    assert decode(open_image(encoded(with_alpha), None)).getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_keep_their_shades(kind):
    shades = np.array([[0, 257, 32896, 65535]], dtype=np.uint16)
    image = decode(open_image(encoded(Image.fromarray(shades), kind), None))
    assert [image.getpixel((x, 0))[0] for x in range(4)] == [0, 1, 128, 255]


def test_thirty_two_bits_are_refused():
    real = Image.fromarray(np.array([[0.5, -3.0]], dtype=np.float32))
    with pytest.raises(MediaError, match=r"32 bits a pixel \(mode F\), from -3 to 0.5"):
        decode(open_image(encoded(real, "TIFF"), None))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_turned_photos_stand_upright(kind, orientation):
    upright = Image.new("RGB", (48, 32), (0, 0, 0))
    upright.paste(RED, (0, 0, 16, 16))
    undo = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    stored = upright.transpose(undo[orientation]) if orientation > 1 else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    opened = open_image(encoded(stored, kind, exif=exif), None)
    assert opened.size == (48, 32)
    image = decode(opened)
    assert image.size == (48, 32)
    assert abs(image.getpixel((5, 5))[0] - RED[0]) < 20
    assert image.getpixel((40, 25))[0] < 20


def test_animations_belong_to_videos():
    frames = [Image.new("RGB", (4, 4), (shade, 0, 0)) for shade in (0, 100, 200)]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    with pytest.raises(MediaError, match=r"has 3 frames.*videos column"):
        open_image(data, None)
    assert open_image(encoded(frames[0], "GIF"), None).size == (4, 4)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (None, "is a NoneType"),
        (3, "is a int"),
        (float("nan"), "is a float"),
        ("", "is an empty text"),
        (b"", "0 bytes"),
        ({}, "an object with nothing"),
        ({"width": 3}, "an object with width; it needs"),
        ({"bytes": None, "path": None}, "an object with bytes, path"),
        ("no/such.png", r"not there: no/such\.png\. Relative paths start from data\.image_dir"),
        ("a\0b.png", "names (no|a) file"),
        ("x" * 5000 + ".png", r"names no file: x+….*\(.*"),
        ("https://example.com/a.png", "is the address https://example.com/a.png; download it"),
        ("data:image/png,abc", "without ;base64"),
        ("data:image/png;base64,@@@", "not valid base64"),
        ("data:image/png;base64,", "0 bytes"),
        ("data:image/png;base64,aGVsbG8=", "is no picture"),
        (b"hello", "is no picture that can be read .*identify"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "is no picture"),
        (png_header(60000, 60000), r"claims more than 100,000,000 pixels"),
        (png_header(12000, 12000), r"claims 12000×12000 pixels, more than"),
        (png_header(0, 10), "is no picture|has 0×10"),
        ({"path": {"path": {"path": 3}}}, "is a int"),
        (Path(__file__).parent, "is a folder"),
        (Path(__file__), r"is no picture that can be read in .*test_images\.py"),
    ],
)  # fmt: skip
def test_bad_images(source, message):
    with pytest.raises(MediaError, match=message) as caught:
        decode(open_image(source, None))
    assert len(str(caught.value)) < 600


def test_the_limit_is_below_pillows_own():
    # Between the two Pillow only warns: such a picture must be refused here.
    assert MOST_PIXELS < 2 * Image.MAX_IMAGE_PIXELS


@pytest.mark.parametrize(
    ("size", "least", "most", "expected"),
    [
        ((100, 50), None, None, (100, 50)),
        ((100, 50), 5000, 5000, (100, 50)),
        ((1000, 1000), None, 250000, (500, 500)),
        ((1000, 333), 262144, 4194304, (1000, 333)),
        ((100, 100), 262144, None, (512, 512)),
        ((4000, 3000), 262144, 4194304, (2364, 1773)),
        ((100000, 1), None, 100, (3162, 1)),
    ],
)
def test_pixels_are_kept_within_bounds(size, least, most, expected):
    assert fitted(size, least, most) == expected
