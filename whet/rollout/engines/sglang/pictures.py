"""Images for a server that prepares them itself: PNG files as text beside the prompt, one placeholder for each.

The server resizes and counts for itself, so whatever could make it read another prompt than the learner's is looked
for: text that is split into other tokens when it is read again, and another number of tokens in the end.
"""

from __future__ import annotations

import base64
import io
from collections import OrderedDict
from itertools import groupby
from typing import Any

from transformers import PretrainedConfig, PreTrainedTokenizerBase

from whet.errors import UserError
from whet.types import Media, Prompt

_QUICK = 1  # of PNG's levels: files a little larger, made in a fraction of the time


class Pictures:
    """Prompts of one model as a server wants them; a file is made once for the samples that follow each other."""

    def __init__(self, config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase, kept: int) -> None:
        """The files of the last `kept` prompts are kept."""
        self._image_id: int | None = getattr(config, "image_token_id", None)
        self._tokenizer, self._kept = tokenizer, kept
        self._files: OrderedDict[int, tuple[Media, list[str]]] = OrderedDict()

    def check(self, prompt: Prompt) -> None:
        """UserError where the server would not see what the learner sees."""
        media = prompt.media
        if media is None:
            return
        if media.videos or "pixel_values_videos" in media.inputs:
            raise UserError(
                f"{prompt.uid}: a server chooses the frames of a video itself, which may be others than the learner's; "
                "videos need worker.rollout.name=native, hf or vllm"
            )
        ids = self.ids(prompt)
        places = 0 if self._image_id is None else ids.count(self._image_id)
        if places != len(media.images):
            raise UserError(f"{prompt.uid}: {places} places for images in the prompt, and {len(media.images)} images")
        if media.images and self._tokenizer.encode(self._tokenizer.decode(ids), add_special_tokens=False) != ids:
            raise UserError(
                f"{prompt.uid}: a server reads a prompt with images as text again, and its tokens would be others than "
                "these; set worker.rollout.name=native, hf or vllm"
            )

    def ids(self, prompt: Prompt) -> list[int]:
        """The prompt with one placeholder for each image: the server repeats it."""
        if prompt.media is None or self._image_id is None:
            return prompt.ids
        runs = ((token, list(run)) for token, run in groupby(prompt.ids))
        return [each for token, run in runs for each in (run[:1] if token == self._image_id else run)]

    def files(self, prompt: Prompt) -> list[str]:
        """The prompt's images as base64."""
        media = prompt.media
        if media is None or not media.images:
            return []
        found = self._files.pop(id(media), None) or (media, [_png(image) for image in media.images])
        self._files[id(media)] = found  # it holds the media, so that no other can have this id meanwhile
        while len(self._files) > self._kept:
            self._files.popitem(last=False)
        return found[1]


def _png(image: Any) -> str:
    written = io.BytesIO()
    image.save(written, "PNG", compress_level=_QUICK)
    return base64.b64encode(written.getvalue()).decode()
