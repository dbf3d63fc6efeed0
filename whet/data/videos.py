"""One video as frames in RGB: a list or a folder of pictures, an animated GIF, WebP or PNG, or a video file.

Video files are read through PyAV where it is installed. From a moving picture `data.video_fps` frames a second are
taken, evenly; frames that were taken already are kept as they are, unless they say how fast they come.
"""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from whet.data.columns import MediaError
from whet.data.images import (
    Size,
    check_size,
    count_frames,
    decode,
    in_rgb,
    locate,
    open_image,
    open_lazily,
    reason_of,
)

MOST_FRAMES = 768  # Qwen-VL's limit
PICTURES = {".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm", ".avif"}
MOVING = {".gif", ".webp", ".png", ".apng", ".avif"}


@dataclass(slots=True)
class Video:
    """A video whose length and size are known; `read` decodes the frames that are taken."""

    frames: int
    size: Size
    fps: float  # of the frames that are taken
    read: Callable[[], list[Image.Image]]


def open_video(source: Any, folder: Path | None, fps: float) -> Video:
    """Open frames (a list, {"frames", "fps"} or a folder), or a path or bytes of a moving picture."""
    rate = None
    if isinstance(source, dict) and source.get("frames") is not None:
        rate, source = source.get("fps"), source["frames"]
        if rate is not None and (not isinstance(rate, int | float) or not 0 < rate < float("inf")):
            raise MediaError(f"says fps={rate!r}; it must be a number above 0")
    if isinstance(source, list | tuple):
        return _of_frames(source, folder, fps, rate)
    data = locate(source, folder)
    if isinstance(data, Path) and data.is_dir():
        files = sorted(file for file in data.iterdir() if file.suffix.lower() in PICTURES)
        return _of_frames(files, None, fps, rate)
    if isinstance(data, Path) and not data.is_file():  # reading a pipe or a device may never end
        raise MediaError(f"is no ordinary file: {data}")
    if isinstance(data, Image.Image) or (isinstance(data, Path) and data.suffix.lower() in MOVING):
        return _of_animation(data, fps)
    if isinstance(data, bytes):
        try:
            return _of_animation(data, fps)
        except MediaError as error:
            if not _has_pyav():
                raise error
    elif data.suffix.lower() in PICTURES:
        raise MediaError(f"is one still picture ({data}); the frames of a video are a list in the list of videos")
    return _of_file(data, fps)


def evenly(total: int, source_fps: float, fps: float) -> tuple[list[int], float]:
    """Return the indices of the frames to take for `fps` frames a second, at least two, and the resulting rate."""
    wanted = round(total / source_fps * fps)
    count = min(max(wanted, 2), total, MOST_FRAMES)
    return [index * total // count for index in range(count)], count / total * source_fps


def _of_frames(sources: Sequence[Any], folder: Path | None, fps: float, source_fps: float | None) -> Video:
    if not sources:
        raise MediaError("has no frames")
    chosen, rate = evenly(len(sources), source_fps or fps, fps)
    size = _frame(sources[0], folder, 0).size
    check_size(size, len(chosen))

    def read() -> list[Image.Image]:
        frames = [_frame(sources[index], folder, index) for index in chosen]
        sizes = sorted({frame.size for frame in frames} | {size})
        if len(sizes) > 1:  # before they are decoded, as the sum of pixels counts with the first one's
            shown = " and ".join(f"{width}×{height}" for width, height in sizes[:2])
            raise MediaError(f"has frames of different sizes ({shown})")
        return [decode(frame) for frame in frames]

    return Video(len(chosen), size, rate, read)


def _frame(source: Any, folder: Path | None, index: int) -> Any:
    try:
        return open_image(source, folder)
    except MediaError as error:
        raise MediaError(f"has a bad frame: number {index + 1} {error}") from error


def _of_animation(data: Path | bytes | Image.Image, fps: float) -> Video:
    image = open_lazily(data)
    total = count_frames(image)
    if total < 2:
        raise MediaError("is one still picture; the frames of a video are a list in the list of videos")
    check_size(image.size, total)  # all of them are decoded, to know how long each is shown
    milliseconds = sum(shown.info.get("duration") or 100 for shown in _run_through(image))  # as browsers take none
    chosen, rate = evenly(total, total / milliseconds * 1000, fps)

    def read() -> list[Image.Image]:
        wanted = set(chosen)  # from a file opened anew: not every format can be wound back
        return [in_rgb(shown.copy()) for i, shown in enumerate(_run_through(open_lazily(data))) if i in wanted]

    return Video(len(chosen), image.size, rate, read)


def _run_through(image: Image.Image) -> Iterator[Image.Image]:
    """The image at every frame; some formats tell a frame's duration only once it is decoded."""
    for index in range(count_frames(image)):
        try:
            image.seek(index)
            image.load()
        except Exception as error:  # Pillow's decoders raise nearly anything on damaged data
            raise MediaError(f"cannot be decoded ({reason_of(error)})") from error
        yield image


def _has_pyav() -> bool:
    return importlib.util.find_spec("av") is not None


def _of_file(data: Path | bytes, fps: float) -> Video:
    name = str(data) if isinstance(data, Path) else "its bytes"
    if not _has_pyav():
        raise MediaError(
            f"is a video file ({name}), which needs PyAV: pip install whet[video]. Folders and lists of frames, and "
            "animated GIF and WebP files, are read without it"
        )
    import av

    def opened() -> Any:
        return av.open(io.BytesIO(data) if isinstance(data, bytes) else str(data))

    try:
        with opened() as container:
            stream = container.streams.video[0]
            rate = float(stream.average_rate or stream.guessed_rate or 0)
            seconds = float(container.duration or 0) / av.time_base
            total, size = stream.frames or round(seconds * rate), (stream.width, stream.height)
    except Exception as error:  # FFmpeg's errors, a file without video, damaged headers
        raise MediaError(f"is no video that can be read ({name}: {reason_of(error)})") from error
    if rate <= 0 or total < 1:
        raise MediaError(f"does not say how long it is ({name}); write its frames to a folder")
    chosen, taken_fps = evenly(total, rate, fps)
    check_size(size, len(chosen))

    def read() -> list[Image.Image]:
        wanted, frames = set(chosen), []
        try:
            with opened() as container:
                for index, frame in enumerate(container.decode(video=0)):
                    if index in wanted:
                        frames.append(frame.to_image().convert("RGB"))
                    if index >= chosen[-1]:
                        break
        except Exception as error:  # as above
            raise MediaError(f"cannot be decoded ({name}: {reason_of(error)})") from error
        if len(frames) < len(chosen):
            raise MediaError(f"ends early ({name}): {len(frames)} of {len(chosen)} frames could be read")
        return frames

    return Video(len(chosen), size, taken_fps, read)
