"""A row of the data as a harness reads it."""

from __future__ import annotations

import base64
import io
import re
from typing import Any

from whet.types import Prompt


def row_of(prompt: Prompt) -> tuple[dict[str, Any], list[bytes]]:
    """Return a row as a harness reads it, and the files of the images in it.

    A row is its columns, and uid, messages and answer where no column is called so. Images in messages are parts with
    data: URLs, so that the messages can be sent as they are.
    """
    files = [] if prompt.media is None else [_png(image) for image in prompt.media.images]
    messages = _with_images(prompt.messages, files) if files else prompt.messages
    return {"uid": prompt.uid, "messages": messages, "answer": prompt.answer} | prompt.extra, files


def _png(image: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, format="PNG", compress_level=1)
    return file.getvalue()


def _with_images(messages: list[dict[str, Any]], files: list[bytes]) -> list[dict[str, Any]]:
    """Return messages in which each `<image>` of a text is a part of its own."""
    urls = iter([f"data:image/png;base64,{base64.b64encode(file).decode('ascii')}" for file in files])
    shown = []
    for message in messages:
        pieces = re.split(r"(<image>)", message["content"]) if isinstance(message.get("content"), str) else []
        parts: list[dict[str, Any]] = [
            {"type": "image_url", "image_url": {"url": next(urls)}}
            if piece == "<image>"
            else {"type": "text", "text": piece}
            for piece in pieces
            if piece
        ]
        shown.append(message | {"content": parts} if len(pieces) > 1 else message)
    return shown
