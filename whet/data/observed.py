"""Images that arrive during a conversation: their places in token ids, and the pixels the model sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from PIL import Image

from whet.data.chat import IMAGE, PLACE, Message
from whet.data.images import check_size, fitted, in_rgb
from whet.types import Media

if TYPE_CHECKING:
    from whet.config.schema.data import DataConfig
    from whet.model.processor import Processor


class ObservedImages:
    """Reads messages with images for one vision model."""

    def __init__(self, processor: Processor, config: DataConfig, speaks_chat: bool) -> None:
        """`speaks_chat` is False for a model without a chat template, which reads the processor's own place."""
        self._processor, self._config, self._chats = processor, config, speaks_chat

    def written(self, messages: list[Message]) -> list[Message]:
        """Return messages as the chat template wants them: `<image>` in a text becomes a part of its own."""
        return [message | {"content": self._content(message.get("content"))} for message in messages]

    def read(self, ids: list[int], images: list[Any]) -> tuple[list[int], Media]:
        """Return ids with one place for each image expanded to its tokens, and the images as the model sees them."""
        seen = [self._resized(image) for image in images]
        expanded = self._processor.expand(ids, [image.size for image in seen])
        return expanded, Media(list(seen), [], self._processor.pixels(seen, []) if seen else {})

    def _content(self, text: Any) -> Any:
        if not isinstance(text, str) or not PLACE.search(text):
            return text
        if not self._chats:
            return text.replace(IMAGE, self._processor.image_place)
        return [
            {"type": "image"} if piece == IMAGE else {"type": "text", "text": piece}
            for piece in PLACE.split(text)
            if piece
        ]

    def _resized(self, image: Image.Image) -> Image.Image:
        check_size(image.size)
        size = self._processor.target_size(fitted(image.size, self._config.min_pixels, self._config.max_pixels))
        image = in_rgb(image)
        return image if size == image.size else image.resize(size, Image.Resampling.BICUBIC)
