"""Images of a request, looked at before they are decoded: how many, of what format, and how many pixels.

A picture of a few KB can have 100 million pixels. Sizes are read from the headers.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator

from PIL import Image

from whet.data.images import MediaError, locate, reason_of
from whet.serving.errors import ApiError
from whet.serving.requests import ChatRequest, ImagePart

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
_MOST_SCANS = 100  # of a progressive JPEG, which is decoded anew for each; encoders write about ten


def image_urls(request: ChatRequest) -> Iterator[str]:
    """The data: URLs of all images of a chat."""
    for message in request.messages:
        for part in message.content if isinstance(message.content, list) else ():
            if isinstance(part, ImagePart):
                yield part.image_url.url


def count_pixels(request: ChatRequest, most_images: int, most_pixels: int) -> int:
    """Pixels of all images; 400 if there are too many, or if one is no still picture."""
    urls = list(image_urls(request))
    if len(urls) > most_images:
        raise _refusal(f"{len(urls)} images, more than serve.max_images={most_images}")
    pixels = 0
    for number, url in enumerate(urls, 1):
        try:
            pixels += _pixels(url)
        except MediaError as error:
            raise _refusal(f"image {number} {error}") from None
        if pixels > most_pixels:
            raise _refusal(f"the images have more than serve.max_pixels={most_pixels} pixels; shrink them")
    return pixels


def _pixels(url: str) -> int:
    data = locate(url, None)
    assert isinstance(data, bytes), "a data: URL"
    if data[:2] == b"\xff\xd8" and data.count(b"\xff\xda") > _MOST_SCANS:
        raise MediaError(f"has more than {_MOST_SCANS} scans; save it anew")
    Image.init()
    known = [name for name in FORMATS if name in Image.OPEN]  # Pillow is built without WebP here and there
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(io.BytesIO(data), formats=known) as image:
            moving = getattr(image, "is_animated", False) and image.format != "MPO"  # a JPEG with its thumbnail
            width, height = image.size
    except Exception as error:  # Pillow's parsers raise nearly anything on damaged data
        raise MediaError(f"is no picture that can be read ({reason_of(error)}); send PNG, JPEG, WebP or GIF") from None
    if moving:
        raise MediaError("has several frames; send one of them")
    return width * height


def _refusal(text: str) -> ApiError:
    return ApiError(400, f"messages: {text}", "image_not_allowed", "messages")
