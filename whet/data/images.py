"""One image, from whatever a row holds of it to RGB pixels of the size that the model sees.

`open_image` reads no more than a header, so that sizes and tokens are known without decoding; `decode` does the rest.
Only formats of still pictures that Pillow decodes by itself are opened: some of its others run programs.
"""

from __future__ import annotations

import base64
import binascii
import io
import math
import os
import re
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from PIL import Image

from whet.config.texts import printable
from whet.data.columns import MediaError

Size = tuple[int, int]  # width, height

FORMATS = ("PNG", "JPEG", "MPO", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF", "JPEG2000", "ICO", "TGA")
MOST_PIXELS = 100_000_000  # 300 MB once decoded; a file of a few KB can claim many times that
MOST_MOVING_PIXELS = 2_000_000_000  # of the frames of one video
ORIENTATION = 0x0112  # the EXIF tag
TURNED = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# A name without an extension can be valid base64 too; a picture in base64 begins as a picture does, or is too long.
BASE64 = re.compile(r"[A-Za-z0-9+/_-]{32,}={0,2}")
SIGNATURES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"BM", b"II*\0", b"MM\0*", b"\0\0\0")
LONGEST_NAME = 1000


@dataclass(slots=True)
class Opened:
    """An image whose header has been read."""

    image: Image.Image
    orientation: int
    size: Size  # upright


def open_image(source: Any, folder: Path | None) -> Opened:
    """Open a path (relative ones from `folder`), bytes, {"bytes"}, {"path"}, base64, a data: URL or a PIL image."""
    image = open_lazily(locate(source, folder))
    if image.format != "MPO" and count_frames(image) > 1:  # a photo with its own thumbnail
        raise MediaError(f"has {count_frames(image)} frames; keep one of them, or put it into the videos column")
    return _checked(image)


def decode(opened: Opened) -> Image.Image:
    """The upright picture in RGB."""
    try:
        opened.image.load()
        image = in_rgb(opened.image)
        turn = TURNED.get(opened.orientation)
        return image if turn is None else image.transpose(turn)
    except MediaError:
        raise
    except Exception as error:  # Pillow's decoders raise nearly anything on damaged data
        raise MediaError(f"cannot be decoded ({reason_of(error)})") from error


def fitted(size: Size, least: int | None, most: int | None) -> Size:
    """The size scaled to at most `most` and at least `least` pixels, rounded down as EasyR1 does it."""
    width, height = size
    if most is not None and width * height > most:
        factor = math.sqrt(most / (width * height))
        width, height = max(1, int(width * factor)), max(1, int(height * factor))
    if least is not None and width * height < least:
        factor = math.sqrt(least / (width * height))
        width, height = int(width * factor), int(height * factor)
    return width, height


def locate(source: Any, folder: Path | None) -> Path | bytes | Image.Image:
    """Return the path of a source's data, or the data itself."""
    if isinstance(source, dict):
        source = _of_dict(source)
    if isinstance(source, bytes | bytearray | memoryview):
        if not len(source):
            raise MediaError("is empty: it has 0 bytes")
        return bytes(source)
    if isinstance(source, Image.Image):
        return source
    if isinstance(source, Path):
        return _existing(str(source), folder)
    if not isinstance(source, str):
        raise MediaError(f"is a {type(source).__name__}; it must be a path, bytes, base64 or a data: URL")
    return _of_text(source, folder)


def _of_dict(source: dict[str, Any]) -> Any:
    """Return the source in a dict of the datasets library, of transformers or of OpenAI's chats."""
    for name in ("bytes", "image", "path", "url", "base64", "image_url", "video"):
        value = source.get(name)
        if value is not None:
            return _of_dict(value) if isinstance(value, dict) else value
    names = ", ".join(sorted(map(str, source))) or "nothing"
    raise MediaError(f'is an object with {names}; it needs "bytes" or "path"')


def _of_text(text: str, folder: Path | None) -> Path | bytes:
    text = text.strip()
    if not text:
        raise MediaError("is an empty text")
    if text.startswith("data:"):
        head, comma, body = text.partition(",")
        if not comma or not head.endswith(";base64"):
            raise MediaError("is a data: URL without ;base64, before its data")
        return _base64(body)
    if text.startswith("file://"):
        try:
            return _existing(unquote(urlsplit(text).path), folder)
        except ValueError as error:  # an address in brackets that is none
            raise MediaError(f"is no file:// address: {_short(text)} ({reason_of(error)})") from error
    if re.match(r"[a-z][a-z0-9+.-]*://", text):
        raise MediaError(f"is the address {_short(text)}; download it and name the file")
    compact = "".join(text.split())
    if BASE64.fullmatch(compact):
        if len(compact) > LONGEST_NAME:
            return _base64(compact)
        with suppress(MediaError):  # the name of a file or folder, then
            data = _base64(compact)
            if data.startswith(SIGNATURES):
                return data
    return _existing(text, folder)


def _base64(text: str) -> bytes:
    compact = "".join(unquote(text).split()).replace("-", "+").replace("_", "/").rstrip("=")
    try:
        data = base64.b64decode(compact + "=" * (-len(compact) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise MediaError(f"is not valid base64 ({error})") from error
    if not data:
        raise MediaError("is empty: its base64 holds 0 bytes")
    return data


def _existing(name: str, folder: Path | None) -> Path:
    path = _path(name, folder)
    try:
        if path.exists():
            return path
    except (OSError, ValueError) as error:  # names with a null character, or longer than the system allows
        raise MediaError(f"names no file: {_short(name)} ({reason_of(error)})") from error
    where = "" if path.is_absolute() or folder is not None else ". Relative paths start from data.image_dir"
    raise MediaError(f"names a file that is not there: {_short(str(path))}{where}")


def _path(name: str, folder: Path | None) -> Path:
    path = Path(os.path.expanduser(name))
    return folder / path if folder is not None else path


def open_lazily(data: Path | bytes | Image.Image) -> Image.Image:
    """Read the header of a picture, still or moving."""
    if isinstance(data, Image.Image):
        return data
    if isinstance(data, Path) and not data.is_file():
        raise MediaError(f"is a folder: {data}" if data.is_dir() else f"is no ordinary file: {data}")
    Image.init()
    known = [name for name in FORMATS if name in Image.OPEN]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's about sizes, which are checked here
            return Image.open(io.BytesIO(data) if isinstance(data, bytes) else data, formats=known)
    except Image.DecompressionBombError as error:
        raise MediaError(f"claims more than {MOST_PIXELS:,} pixels") from error
    except Exception as error:  # as in `decode`
        where = f" in {data}" if isinstance(data, Path) else ""
        raise MediaError(f"is no picture that can be read{where} ({reason_of(error)})") from error


def count_frames(image: Image.Image) -> int:
    """Count the frames of a picture; some formats are read to their end for that."""
    try:
        return getattr(image, "n_frames", 1)
    except Exception as error:  # as in `decode`
        raise MediaError(f"cannot be decoded ({reason_of(error)})") from error


def check_size(size: Size, frames: int = 1) -> None:
    """Refuse a picture, or the frames of a moving one together, that would fill the memory once decoded."""
    width, height = size
    if width < 1 or height < 1:
        raise MediaError(f"has {width}×{height} pixels")
    if width * height > MOST_PIXELS:
        raise MediaError(f"claims {width}×{height} pixels, more than {MOST_PIXELS:,}; shrink it")
    if width * height * frames > MOST_MOVING_PIXELS:
        raise MediaError(
            f"claims {frames} frames of {width}×{height} pixels, together more than {MOST_MOVING_PIXELS:,}; shrink it"
        )


def _checked(image: Image.Image) -> Opened:
    check_size(image.size)
    width, height = image.size
    orientation = _orientation(image)
    return Opened(image, orientation, (height, width) if orientation in (5, 6, 7, 8) else (width, height))


def _orientation(image: Image.Image) -> int:
    # Pillow would decode a whole PNG to look for EXIF data behind its pixels, and turns a TIFF itself.
    if image.format == "TIFF" or (image.format == "PNG" and "exif" not in image.info):
        return 1
    try:
        value = image.getexif().get(ORIENTATION, 1)
    except Exception:  # damaged EXIF data leaves a picture as it is
        return 1
    return value if isinstance(value, int) else 1


def in_rgb(image: Image.Image) -> Image.Image:
    """The same picture with 8 bits each of red, green and blue; what is transparent lies on white."""
    if image.mode == "RGB":
        return image
    if image.mode.startswith(("I", "F")):
        return _eight_bits(image).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")


def _eight_bits(image: Image.Image) -> Image.Image:
    """16 bits of grey as 8; Pillow's own conversion would cut everything above 255 to white."""
    if image.mode.startswith("I;16"):
        image = image.convert("I")
    low, high = cast("tuple[float, float]", image.getextrema())  # a pair of them, as the picture has one band
    if image.mode == "I" and low >= 0 and high < 2**16:
        return image.point(lambda value: value * (1 / 257)).convert("L")
    raise MediaError(f"has 32 bits a pixel (mode {image.mode}), from {low:g} to {high:g}; save it with 8 or 16")


def reason_of(error: Exception) -> str:
    """The first line of what an error says, without addresses of memory."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return _short(re.sub(r" ?<_io\.BytesIO object at 0x[0-9a-f]+>", " its bytes", text))


def _short(text: str) -> str:
    text = printable(text)
    return text if len(text) <= 160 else f"{text[:100]}…{text[-40:]}"
