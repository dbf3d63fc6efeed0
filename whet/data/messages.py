"""A turn of a chat in the data: checked, its content as text, its images and videos apart."""

from __future__ import annotations

from typing import Any

from whet.data.chat import IMAGE, VIDEO, Message
from whet.data.columns import Sources
from whet.errors import UserError

PLACES = {"image": IMAGE, "image_url": IMAGE, "video": VIDEO, "video_url": VIDEO}


def read_message(turn: Any, where: str, inline: Sources | None) -> Message:
    """A turn, checked, with its content as text."""
    if not isinstance(turn, dict) or not isinstance(turn.get("role"), str) or "content" not in turn:
        raise UserError(f"{where} of the chat must be an object with role and content.")
    # Parquet gives every turn every field; templates ask whether a field such as tool_calls is there at all.
    message = {name: value for name, value in turn.items() if value is not None}
    message["content"] = _text_of(turn["content"], where, inline)
    if not message["content"].strip() and turn["role"] == "user":
        raise UserError(f"{where} of the chat is empty. Fill it in or remove the row.")
    return message


def _text_of(content: Any, where: str, inline: Sources | None) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise UserError(f"{where}: content must be text or a list of parts, it is a {type(content).__name__}.")
    return "".join(_text_of_part(part, where, inline) for part in content)


def _text_of_part(part: Any, where: str, inline: Sources | None) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in PLACES:
        if inline is None:
            raise UserError(f"{where} holds an {kind} part, and the model reads text only. Use a model that sees.")
        found = (part.get(name) for name in (kind, "image", "video", "path", "url", "base64", "bytes"))
        source = next((value for value in found if value is not None), None)
        if source is not None:  # without one the part stands for the next of the column
            (inline.images if PLACES[kind] == IMAGE else inline.videos).append(source)
        return PLACES[kind]
    if kind != "text" or not isinstance(part.get("text"), str):
        raise UserError(f"{where}: each part of the content must be an object with type text and a text.")
    return part["text"]
