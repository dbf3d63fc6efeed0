"""A question as the messages of OpenAI's API: the template's text, and its images as data: URLs where they stand."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

from PIL import Image

from whet.config.schema.data import DataConfig
from whet.data.chat import IMAGE, PLACE, VIDEO, as_messages, last_user_turn
from whet.data.columns import MediaError, Sources, column_items, lookup
from whet.data.images import decode, fitted, open_image
from whet.data.rows import BadRow
from whet.data.template import PromptTemplate
from whet.errors import UserError
from whet.evals.questions import Question


class ChatWriter:
    """Writes the questions of one data set."""

    def __init__(self, data: DataConfig) -> None:
        self._data = data
        self._template = PromptTemplate(Path(data.format_prompt)) if data.format_prompt else None
        self._folder = Path(data.image_dir) if data.image_dir else None

    def messages(self, question: Question) -> list[dict[str, Any]]:
        """The turns of a question; raises `BadRow` where an image is unusable."""
        data, row, uid = self._data, question.row, question.uid
        inline = Sources()
        messages = as_messages(lookup(row, data.prompt_key), uid, data.prompt_key, inline)
        images = column_items(row, data.image_key)
        if images and inline.images:
            raise BadRow(
                f"{uid}: images stand both in the chat and in the column {data.image_key!r}. Keep one of the two."
            )
        if self._template:
            turn = last_user_turn(messages, uid)
            columns = {"images": images, "videos": []} | row | {data.image_key: images}
            turn["content"] = self._template.render(turn["content"], columns, uid)
        left = [*images, *inline.images]
        places = sum(message["content"].count(IMAGE) for message in messages)
        if places != len(left) or any(VIDEO in message["content"] for message in messages):
            raise UserError(
                f"{uid}: {len(left)} images and {places} places for them. Write <image> in the prompt, or in its "
                "template, once for each; videos cannot be sent."
            )
        return [{"role": each["role"], "content": self._content(each["content"], left, uid)} for each in messages]

    def _content(self, text: str, left: list[Any], uid: str) -> str | list[dict[str, Any]]:
        if IMAGE not in text:
            return text
        return [
            {"type": "image_url", "image_url": {"url": self._url(left.pop(0), uid)}}
            if piece == IMAGE
            else {"type": "text", "text": piece}
            for piece in PLACE.split(text)
            if piece.strip()
        ]

    def _url(self, source: Any, uid: str) -> str:
        """The picture as the model is to see it, in PNG, which loses nothing."""
        try:
            picture = decode(open_image(source, self._folder))
        except (MediaError, ValueError, OSError, MemoryError) as error:
            raise BadRow(f"{uid}: an image (column {self._data.image_key!r}) {error}.") from error
        size = fitted(picture.size, None, self._data.max_pixels)
        picture = picture if size == picture.size else picture.resize(size, Image.Resampling.BICUBIC)
        buffer = io.BytesIO()
        picture.save(buffer, "PNG")
        return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
