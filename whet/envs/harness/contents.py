"""Contents of messages that a harness sends: texts, and images in data: URLs."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

_SEES = ("user", "tool")  # roles whose messages may have images
_TEXTS = ("text", "input_text", "output_text")


class RefusedError(Exception):
    """A call that is not answered; the message goes to the harness."""

    def __init__(self, status: int, message: str, code: str = "invalid_request") -> None:
        super().__init__(message)
        self.status, self.code = status, code

    @property
    def body(self) -> dict[str, Any]:
        """Return the error as OpenAI's clients read it."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": str(self), "type": kind, "param": None, "code": self.code}}


def read_content(content: Any, where: str, role: str, images: list[bytes]) -> str | list[dict[str, str]]:
    """Return the text of a message, or its parts where it has images, whose files are put behind `images`."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise RefusedError(400, f"{where}.content must be text or a list of parts")
    parts: list[dict[str, str]] = []
    for number, part in enumerate(content):
        here = f"{where}.content[{number}]"
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind in ("image_url", "input_image") and role in _SEES:
            images.append(_file(part.get("image_url"), here))
            parts.append({"type": "image"})
        elif kind not in _TEXTS or not isinstance(part.get("text"), str):
            raise RefusedError(
                400,
                f"{here} must be text or, in a user's or a tool's message, an image_url",
                "unsupported_value",
            )
        elif parts and parts[-1]["type"] == "text":
            parts[-1] = {"type": "text", "text": parts[-1]["text"] + part["text"]}
        elif part["text"]:
            parts.append({"type": "text", "text": part["text"]})
    if all(part["type"] == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return parts


def _file(given: Any, where: str) -> bytes:
    """Return the file in a data: URL; addresses and paths are not followed."""
    url = given.get("url") if isinstance(given, Mapping) else given
    head, comma, data = url.partition(",") if isinstance(url, str) else ("", "", "")
    if not head.startswith("data:") or not head.endswith(";base64") or not comma:
        raise RefusedError(400, f"{where}: an image must be sent as a data: URL with ;base64, before its data")
    try:
        file = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RefusedError(400, f"{where}: the image is not valid base64 ({error})") from None
    if not file:
        raise RefusedError(400, f"{where}: the image is empty")
    return file
