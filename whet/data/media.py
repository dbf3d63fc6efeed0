"""The images and videos of a row: which they are, how many tokens they take, and the pixels the model sees.

Everything that is wrong with them raises `MediaError` with the row, the column and the reason. What the config says
about such rows is decided by the dataset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from PIL import Image

from whet.data.columns import MediaError, Sources, column_items
from whet.data.formats import Columns
from whet.data.images import Opened, Size, decode, fitted, open_image
from whet.data.videos import Video, open_video
from whet.errors import UserError
from whet.model.grid_processor import Clip
from whet.types import Media

if TYPE_CHECKING:
    from whet.config.schema.data import DataConfig
    from whet.model.processor import Processor

T = TypeVar("T")


class MediaReader:
    """Reads the media of rows for one model."""

    def __init__(self, processor: Processor, config: DataConfig, folder: Path | None, limit_images: int = 0) -> None:
        """`folder` is where relative paths start; `limit_images` the most images of a prompt, 0 for any number."""
        self._processor, self._config = processor, config
        self._folder, self._limit = folder, limit_images

    def sources(self, row: Columns, inline: Sources, uid: str) -> Sources:
        """The media of a row: those of its columns, or those that stand in its chat."""
        images = self._choose(column_items(row, self._config.image_key), inline.images, uid, "image")
        videos = self._choose(column_items(row, self._config.video_key), inline.videos, uid, "video")
        if videos and self._processor.video_place is None:
            raise UserError(
                f"{uid}: the prompt has a video, and this model reads images only. Remove such rows, or use a model of "
                "the Qwen-VL family."
            )
        if self._limit and len(images) > self._limit:
            raise MediaError(
                f"{uid}: {len(images)} images, more than worker.rollout.limit_images={self._limit}. Raise it, or "
                "remove the row."
            )
        return Sources(images, videos)

    def length(self, text: str, sources: Sources, uid: str, special: bool, decode_all: bool = False) -> int:
        """Tokens of a prompt, from the headers of its images."""
        images, videos = self._open(sources, uid)
        sizes = [self._target(each.size, uid, "image", n) for n, each in enumerate(images, 1)]
        clips = [
            Clip(each.frames, self._target(each.size, uid, "video", n), each.fps) for n, each in enumerate(videos, 1)
        ]
        if decode_all:
            self._decode(images, videos, uid)
        return self._processed(uid, lambda: self._processor.length(text, sizes, clips, special))

    def read(self, text: str, sources: Sources, uid: str, special: bool) -> tuple[list[int], Media]:
        """Token ids of a prompt and its media, decoded and resized."""
        images, videos = self._open(sources, uid)
        pictures, clips = self._decode(images, videos, uid)
        pictures = [self._resized(image, uid, "image", n) for n, image in enumerate(pictures, 1)]
        clips = [[self._resized(frame, uid, "video", n) for frame in frames] for n, frames in enumerate(clips, 1)]
        rates = [video.fps for video in videos]
        ids, inputs = self._processed(uid, lambda: self._processor.read(text, pictures, clips, rates, special))
        return ids, Media(list(pictures), [list(frames) for frames in clips], inputs)

    def _choose(self, column: list[Any], inline: list[Any], uid: str, kind: str) -> list[Any]:
        if column and inline:
            raise MediaError(
                f"{uid}: {kind}s stand both in the chat and in the column {self._column(kind)!r}. Keep one of the two."
            )
        return column or inline

    def _open(self, sources: Sources, uid: str) -> tuple[list[Opened], list[Video]]:
        images = [
            self._named(uid, "image", n, partial(open_image, each, self._folder))
            for n, each in enumerate(sources.images, 1)
        ]
        videos = [
            self._named(uid, "video", n, partial(open_video, each, self._folder, self._config.video_fps))
            for n, each in enumerate(sources.videos, 1)
        ]
        return images, videos

    def _decode(
        self, images: Sequence[Opened], videos: Sequence[Video], uid: str
    ) -> tuple[list[Image.Image], list[list[Image.Image]]]:
        pictures = [self._named(uid, "image", n, partial(decode, each)) for n, each in enumerate(images, 1)]
        clips = [self._named(uid, "video", n, partial(_frames, each)) for n, each in enumerate(videos, 1)]
        return pictures, clips

    def _resized(self, image: Image.Image, uid: str, kind: str, number: int) -> Image.Image:
        size = self._target(image.size, uid, kind, number)
        return image if size == image.size else image.resize(size, Image.Resampling.BICUBIC)

    def _target(self, size: Size, uid: str, kind: str, number: int) -> Size:
        config = self._config
        return self._named(
            uid,
            kind,
            number,
            lambda: self._processor.target_size(fitted(size, config.min_pixels, config.max_pixels)),
        )

    def _named(self, uid: str, kind: str, number: int, work: Callable[[], T]) -> T:
        """Do something with one image or video, naming it in what goes wrong."""
        try:
            return work()
        except (MediaError, ValueError, OSError, MemoryError) as error:
            reason = (
                str(error) if isinstance(error, MediaError) else f"cannot be used ({error or type(error).__name__})"
            )
            raise MediaError(f"{uid}: {kind} {number} (column {self._column(kind)!r}) {reason}.") from error

    def _processed(self, uid: str, work: Callable[[], T]) -> T:
        try:
            return work()
        except ValueError as error:
            names = " and ".join(repr(self._column(kind)) for kind in ("image", "video"))
            raise MediaError(
                f"{uid}: {error}. Write <image> or <video> in the prompt where each image or video of the columns "
                f"{names} stands, once for each."
            ) from error

    def _column(self, kind: str) -> str:
        return self._config.image_key if kind == "image" else self._config.video_key


def _frames(video: Video) -> list[Image.Image]:
    frames = video.read()
    sizes = sorted({frame.size for frame in frames})
    if len(sizes) > 1:
        shown = " and ".join(f"{width}×{height}" for width, height in sizes[:2])
        raise MediaError(f"has frames of different sizes ({shown})")
    return frames
