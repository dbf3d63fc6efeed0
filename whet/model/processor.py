"""Preprocessing of images and videos: sizes, placeholder tokens and pixel values.

`GridProcessor` serves the Qwen-VL family and its kin; `WholeProcessor` calls the model's own processor, for all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from PIL import Image
from transformers import AutoProcessor, PretrainedConfig, PreTrainedTokenizerBase

# By its module: some versions hide the name in the package when torchvision is missing, though it works without.
from transformers.models.auto.image_processing_auto import AutoImageProcessor
from transformers.utils import cached_file

from whet.errors import UserError
from whet.model.grid_processor import VIDEOS, Clip, GridProcessor, Size, match_places
from whet.model.trust import about, check_processor

FILES = ("preprocessor_config.json", "processor_config.json")
# One value for each token, which whet works out from the ids instead.
PER_TOKEN = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids")


class Processor(Protocol):
    """Processor of a vision model, as data loading needs it. Methods raise ValueError with the reason."""

    chat_template: str | None  # for tokenizers that have none
    image_place: str  # what stands for an image in a text that no chat template writes
    video_place: str | None  # the same for a video; None when the model reads none
    tokens: tuple[str, ...]  # texts that must not stand where there is no image or video

    def target_size(self, size: Size) -> Size:
        """The size that the model sees an image of this size in."""
        ...

    def length(self, text: str, sizes: Sequence[Size], clips: Sequence[Clip], special: bool) -> int:
        """Tokens of a text with images and videos of these (target) sizes, without a pixel of them."""
        ...

    def read(
        self, text: str, images: Sequence[Any], videos: Sequence[Sequence[Any]], fps: Sequence[float], special: bool
    ) -> tuple[list[int], dict[str, Any]]:
        """Token ids, places of images expanded, and the model's other inputs. Images have their target size."""
        ...

    def expand(self, ids: Sequence[int], sizes: Sequence[Size]) -> list[int]:
        """Token ids in which one place stands for each image of these (target) sizes, as the model reads them."""
        ...

    def pixels(self, images: Sequence[Any], videos: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """The inputs that hold pixels, with their grids: what changes when other pixels of the same size are shown."""
        ...

    def save_pretrained(self, folder: Path) -> None:
        """Write what transformers needs to build the processor again."""
        ...


def load_processor(
    path: str, config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase, trust_remote_code: bool = False
) -> Processor | None:
    """The processor in a model's folder; None for a model that reads text only, or that came without one."""
    if getattr(config, "vision_config", None) is None:
        return None
    if Path(path).is_dir() and not any((Path(path) / name).is_file() for name in FILES):
        return None
    with about("worker.actor.model.model_path"):
        check_processor(path)
    try:
        # The PIL backend on every machine: pixel values are the same with torchvision and without.
        images = AutoImageProcessor.from_pretrained(path, trust_remote_code=trust_remote_code, backend="pil")
        if _is_grid(images, config):
            videos = cached_file(path, VIDEOS, _raise_exceptions_for_missing_entries=False)
            processor = GridProcessor(images, tokenizer, config, videos)
            if processor.agrees():
                return processor
        whole = AutoProcessor.from_pretrained(path, trust_remote_code=trust_remote_code, backend="pil")
        return WholeProcessor(whole, tokenizer)
    except Exception as error:  # damaged files, missing libraries and code of the hub raise anything
        key = "worker.actor.model.model_path"
        raise UserError(f"{key}: the processor in {path} could not be read ({type(error).__name__}: {error})") from None


def _is_grid(images: Any, config: PretrainedConfig) -> bool:
    names = ("patch_size", "merge_size", "temporal_patch_size", "size")
    return (
        "image_grid_thw" in getattr(images, "model_input_names", ())
        and all(hasattr(images, name) for name in names)
        and getattr(config, "image_token_id", None) is not None
    )


class WholeProcessor:
    """A model's own processor for text and images together. Videos are not read."""

    video_place: str | None = None

    def __init__(self, processor: Any, tokenizer: PreTrainedTokenizerBase) -> None:
        self._processor, self._tokenizer = processor, tokenizer
        self.chat_template: str | None = getattr(processor, "chat_template", None)
        self.image_place: str = getattr(processor, "image_token", None) or "<image>"
        self.tokens: tuple[str, ...] = (self.image_place,)
        self._extra: dict[tuple[Size, ...], int] = {}  # tokens that images of these sizes add to a text

    def target_size(self, size: Size) -> Size:
        """Images stay as they are: this processor resizes them, into several tiles perhaps."""
        return size

    def length(self, text: str, sizes: Sequence[Size], clips: Sequence[Clip], special: bool) -> int:
        """Tokens with blank images of the same sizes."""
        match_places(0, len(clips), "video")
        plain = len(self._tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"])
        if tuple(sizes) not in self._extra:
            blank = [Image.new("RGB", size) for size in sizes]
            self._extra[tuple(sizes)] = len(self.read(text, blank, [], [], special)[0]) - plain
        return plain + self._extra[tuple(sizes)]

    def read(
        self, text: str, images: Sequence[Any], videos: Sequence[Sequence[Any]], fps: Sequence[float], special: bool
    ) -> tuple[list[int], dict[str, Any]]:
        """Token ids and the model's inputs, as its processor makes them."""
        match_places(0, len(videos), "video")
        made = self._processor(
            text=[text], images=list(images) or None, add_special_tokens=special, return_tensors="pt"
        )
        inputs = {name: value for name, value in made.items() if name not in PER_TOKEN}
        return made["input_ids"][0].tolist(), inputs

    def expand(self, ids: Sequence[int], sizes: Sequence[Size]) -> list[int]:
        """Refuse images: this processor knows them only together with their text."""
        if sizes:
            raise ValueError("this model's processor reads images of the prompt only, not those of later turns")
        return list(ids)

    def pixels(self, images: Sequence[Any], videos: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """Return the processor's tensors for images alone."""
        return dict(self._processor.image_processor(images=list(images), return_tensors="pt"))

    def save_pretrained(self, folder: Path) -> None:
        """Write the processor's own files."""
        self._processor.save_pretrained(folder)
