"""Images that arrive during a conversation: their places in token ids, and the pixels the model sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from PIL import Image

from whet.data.chat import IMAGE, PLACE, Message
from whet.data.columns import MediaError
from whet.data.images import check_size, decode, fitted, in_rgb, open_image
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

    def fitted(self, image: Image.Image | bytes) -> Image.Image:
        """Return an image, or the content of its file, in RGB and the size that the model sees; ValueError for none."""
        try:
            if isinstance(image, bytes):
                image = decode(open_image(image, None))
            check_size(image.size)
        except MediaError as error:
            raise ValueError(f"an image {error}") from error
        size = self._processor.target_size(fitted(image.size, self._config.min_pixels, self._config.max_pixels))
        image = in_rgb(image)
        return image if size == image.size else image.resize(size, Image.Resampling.BICUBIC)

    def expanded(self, ids: list[int], images: list[Any]) -> list[int]:
        """Return ids with the one place of each fitted image expanded to its tokens; ValueError for other numbers."""
        return self._processor.expand(ids, [image.size for image in images])

    def media(self, images: list[Any]) -> Media | None:
        """Return fitted images with the pixels that the model reads; None without any."""
        return Media(list(images), [], self._processor.pixels(images, [])) if images else None

    def _content(self, text: Any) -> Any:
        if isinstance(text, list) and not self._chats:
            return "".join(part.get("text", self._processor.image_place) for part in text)
        if not isinstance(text, str) or not PLACE.search(text):
            return text
        if not self._chats:
            return text.replace(IMAGE, self._processor.image_place)
        return [
            {"type": "image"} if piece == IMAGE else {"type": "text", "text": piece}
            for piece in PLACE.split(text)
            if piece
        ]
