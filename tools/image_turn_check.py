"""Check token-exact turns with images on chat templates of Qwen-VL models.

    python tools/image_turn_check.py FILE.jinja... [--count 1000]

Every template gets a tokenizer that is trained on the spot and an image processor of Qwen's. Random conversations have
images in the first prompt, in users' turns and in results of tools, several in one turn; turns of the policy have
reasoning and up to three calls. In every other one the policy spells its turns in its own way.

After each turn all ids that the engine holds must be those of the whole text, in which each image's place was repeated
as often as the model's own image processor says, and all images must stand in the order of their places, with its
pixels. Where the template renders earlier turns differently now, all of it must begin anew.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from transformers import AutoImageProcessor, PreTrainedTokenizerFast, Qwen2_5_VLConfig
from turn_check import TOOLS, Chats, make_tokenizer, written_text

from whet.chat.messages import Message
from whet.config.schema.data import DataConfig
from whet.data.observed import ObservedImages
from whet.envs.observations import Answer, Observed
from whet.envs.session import Opened
from whet.model.processor import load_processor
from whet.rollout.conversation import Conversations
from whet.rollout.engine import begin
from whet.types import Prompt, Sample, Segment

PLACES = {
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
}
PAD = PLACES["image_token_id"]
SETTINGS = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "patch_size": 14,
    "merge_size": 2,
    "temporal_patch_size": 2,
    "min_pixels": 28 * 28,
    "max_pixels": 28 * 28 * 16,
}


class Model:
    """A tokenizer, whet's reader of images, and the processor that both must agree with."""

    def __init__(self, template: str, folder: Path) -> None:
        self.tokenizer: PreTrainedTokenizerFast = make_tokenizer(template + "".join(PLACES.values()))
        self.tokenizer.chat_template = template
        (folder / "preprocessor_config.json").write_text(json.dumps(SETTINGS))
        ids = {name: self.tokenizer.convert_tokens_to_ids(text) for name, text in PLACES.items()}
        processor = load_processor(str(folder), Qwen2_5_VLConfig(**ids), self.tokenizer)
        assert processor is not None
        self.oracle = AutoImageProcessor.from_pretrained(folder, backend="pil")
        reader = ObservedImages(processor, DataConfig(min_pixels=None, max_pixels=None), speaks_chat=True)
        end = frozenset([self.tokenizer.convert_tokens_to_ids("<|im_end|>")])
        self.conversations = Conversations(self.tokenizer, end, 1_000_000, reader)

    def encoded(self, text: str, images: list[Image.Image]) -> tuple[list[int], dict[str, Any]]:
        """Return the ids of a text with images, and what the model's own processor makes of these."""
        pieces = text.split(PAD)
        assert len(pieces) == len(images) + 1, f"{len(pieces) - 1} places for {len(images)} images"
        read: dict[str, Any] = dict(self.oracle(images=images, return_tensors="pt")) if images else {}
        counts = [int(grid.prod()) // SETTINGS["merge_size"] ** 2 for grid in read.get("image_grid_thw", [])]  # type: ignore[operator]
        whole = pieces[0] + "".join(PAD * count + piece for count, piece in zip(counts, pieces[1:]))
        return self.tokenizer(whole, add_special_tokens=False)["input_ids"], read


class Pictures:
    """Random images for messages."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def put_in(self, message: Message) -> tuple[Message, list[Image.Image]]:
        """Return a message with up to two images somewhere in its text."""
        words, images = message["content"].split(" "), []
        for _ in range(self._random.choice((0, 1, 1, 2))):
            words.insert(self._random.randint(0, len(words)), "<image>")
            size = (self._random.randint(20, 150), self._random.randint(20, 150))
            colour = tuple(self._random.randrange(256) for _ in range(3))
            images.append(Image.new("RGB", size, colour))
        return message | {"content": " ".join(words)}, images


def converse(model: Model, seed: int, found: Counter[str]) -> str:
    """Hold one conversation; return what is wrong, or nothing."""
    chats, pictures = Chats(seed), Pictures(seed)
    tools = TOOLS if seed % 4 else None
    first, images = pictures.put_in({"role": "user", "content": chats.text()})
    shared = model.conversations
    template = shared.template(tools)
    row = Prompt("row", [], "", messages=[first])
    conversation = shared.begin(row, Opened(Observed([first], list(images), is_chat=True), tools))
    messages = [first]
    segments: list[Segment] = []
    held = _render(model, template, messages, True)
    for last in chats.rounds():
        turn = chats.turn(last)
        added, seen = [], []
        for message in chats.results(turn):
            shown, more = pictures.put_in(message)
            added.append(shown)
            seen += more
        before = _render(model, template, messages, True)
        after = _render(model, template, [*messages, turn], False)
        full = _render(model, template, [*messages, turn, *added], True)
        native, is_native = written_text(template, turn, before, after)
        if not is_native:
            found["not native"] += 1  # the template leaves out a part of the turn: turn_check has those
            return ""
        drawn = chats.respelt(native, turn) if chats.respells else native
        written = model.tokenizer(drawn, add_special_tokens=False)["input_ids"]
        segments.append(Segment(written, True, [0.0] * len(written)))
        segments.append(conversation.append(written, Answer(Observed(added, seen), 0.0, False, None, {}, turn)))
        messages = [*messages, turn, *added]
        kept = full.startswith(before + native)
        if segments[-1].restart == kept:
            return f"turn {found['turns']}: " + ("a needless split" if kept else "a rewriting that was not reported")
        images, held = [*images, *seen], held + drawn + full[len(before + native) :] if kept else full
        found["turns"] += 1
        found["split"] += not kept
        found["images"] += len(seen)
        if wrong := _difference(model, Sample(conversation.prompt, list(segments), "stop"), held, images):
            return wrong
    return ""


def _render(model: Model, template: Any, messages: list[Message], is_open: bool) -> str:
    return str(template._rendering.render_all([(model.conversations.written(messages), is_open)])[0])


def _difference(model: Model, sample: Sample, held: str, images: list[Image.Image]) -> str:
    """Return how what the engine reads, and the learner trains on, differs from the whole text with its images."""
    ids, read = model.encoded(held, images)
    prefix = begin(sample).prefix
    trained = sample.prompt.ids + sample.ids
    if prefix.ids != trained[len(trained) - len(prefix.ids) :] or (len(sample.branches) == 1 and prefix.ids != trained):
        return "the engine reads other ids than those that are trained on"
    if prefix.ids != ids:
        at = next((i for i, (a, b) in enumerate(zip(prefix.ids, ids)) if a != b), min(len(ids), len(prefix.ids)))
        return f"ids differ at {at}: {model.tokenizer.decode(prefix.ids[max(0, at - 8) : at + 8])!r}"
    for name, wanted in read.items():
        if prefix.media is None or not torch.equal(prefix.media.inputs[name], torch.as_tensor(wanted)):
            return f"{name} differs from the processor's"
    return ""


def check(template: str, count: int) -> tuple[Counter[str], list[str]]:
    """Return counts of what happened in `count` conversations, and the problems."""
    found: Counter[str] = Counter()
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        model = Model(template, Path(folder))
        for seed in range(count):
            if wrong := converse(model, seed, found):
                problems.append(f"seed {seed}: {wrong}")
    return found, problems


def main() -> int:
    """Check every template."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--count", type=int, default=1000)
    options = parser.parse_args()
    wrong = 0
    for file in options.files:
        found, problems = check(file.read_text(encoding="utf-8"), options.count)
        counts = " ".join(
            f"{name.replace(' ', '_')}={found[name]}" for name in ("turns", "split", "images", "not native")
        )
        print(f"{file.stem:30} conversations={options.count} {counts} wrong={len(problems)}", flush=True)
        for problem in problems[:3]:
            print(f"    {problem}")
        wrong += len(problems)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
