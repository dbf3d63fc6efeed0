"""Pictures of recorded samples: files in `pictures/` of the run folder, named by their pixels, each kept once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from whet.checkpoint.durable import replacing
from whet.types import Media, Sample

FOLDER = "pictures"
PROMPT = -1  # place of a picture that belongs to the prompt
MOST_FRAMES = 8  # of a video, evenly spaced
LONGEST_SIDE = 1024
_EXACT = 256 * 256  # pixels up to which a picture is kept without loss

Kept = dict[str, Any]  # "at": tokens of the response before it, or PROMPT; "file": its name


class PictureFiles:
    """The pictures of a run. Once they take more than the limit, no more are added."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder, self._limit = folder, limit_bytes
        self._total: int | None = None  # bytes of all files; None: not known yet

    def keep(self, samples: Sequence[Sample]) -> list[list[Kept]]:
        """Write the pictures of samples that are not there yet; return where each sample has which."""
        names: dict[int, str | None] = {}  # by identity: the samples of a group share their prompt's
        kept = []
        for sample in samples:
            found = []
            for at, image in _pictures(sample):
                if id(image) not in names:
                    names[id(image)] = self._write(image)
                if (name := names[id(image)]) is not None:
                    found.append({"at": at, "file": name})
            kept.append(found)
        return kept

    def _write(self, image: Any) -> str | None:
        """Write a picture and return its name; None if there is no room for it."""
        if self._total is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._total = sum(file.stat().st_size for file in self._folder.iterdir())
        exact = image.width * image.height <= _EXACT
        digest = hashlib.sha256(f"{image.mode} {image.size}".encode() + image.tobytes()).hexdigest()[:32]
        file = self._folder / f"{digest}.{'png' if exact else 'jpg'}"
        if file.exists():
            return file.name
        if self._total > self._limit:
            return None
        shown = image.convert("RGB")
        shown.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
        with replacing(file, durable=False) as side:
            shown.save(side, "PNG" if exact else "JPEG", quality=85)
        self._total += file.stat().st_size
        return file.name


def _pictures(sample: Sample) -> Iterator[tuple[int, Any]]:
    """Yield the pictures of a sample with their places: before the tokens of the segment that they came with."""
    for image in _of(sample.prompt.media):
        yield PROMPT, image
    at = 0
    for segment in sample.segments:
        for image in _of(segment.media):
            yield at, image
        at += len(segment.ids)


def _of(media: Media | None) -> Iterator[Any]:
    if media is None:
        return
    yield from media.images
    for frames in media.videos:
        yield from frames[:: max(1, -(-len(frames) // MOST_FRAMES))]
