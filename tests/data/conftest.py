"""A word-level tokenizer made on the spot, with and without a chat template, and a way to write data files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PretrainedConfig, PreTrainedTokenizerFast, Qwen2_5_VLConfig, Qwen2VLConfig, Qwen3VLConfig

from whet.model.processor import Processor, load_processor

WORDS = ["<unk>", "<bos>", "system", "user", "assistant", "what", "is", "one", "two", "plus", "think", ":", "?", "|"]
CHAT = (
    "{% for m in messages %}{{ m.role }} : {{ m.content }} | {% endfor %}"
    "{% if add_generation_prompt %}assistant :{% endif %}"
)


def build_tokenizer(chat_template: str | None) -> PreTrainedTokenizerFast:
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", bos_token="<bos>", chat_template=chat_template
    )


@pytest.fixture(scope="session")
def plain_tokenizer() -> PreTrainedTokenizerFast:
    return build_tokenizer(None)


@pytest.fixture(scope="session")
def chat_tokenizer() -> PreTrainedTokenizerFast:
    return build_tokenizer(CHAT)


MARKS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
SEEING_CHAT = (
    "{% for m in messages %}{{ m.role }} : {% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{% if p.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif p.type == 'video' %}<|vision_start|><|video_pad|><|vision_end|>{% else %}{{ p.text }}{% endif %}"
    "{% endfor %}{% endif %} | {% endfor %}{% if add_generation_prompt %}assistant :{% endif %}"
)
CONFIGS: dict[str, type[PretrainedConfig]] = {
    "qwen2_vl": Qwen2VLConfig,
    "qwen2_5_vl": Qwen2_5_VLConfig,
    "qwen3_vl": Qwen3VLConfig,
}


@pytest.fixture(scope="session")
def seeing_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = build_tokenizer(SEEING_CHAT)
    tokenizer.add_special_tokens({"additional_special_tokens": list(MARKS)})
    return tokenizer


@pytest.fixture(scope="session")
def processor_of(seeing_tokenizer, tmp_path_factory):
    """The processor of a model of the Qwen-VL family, from the files of its folder: 28 or 32 pixels to a token."""
    made: dict[str, Processor] = {}

    def load(family: str = "qwen2_5_vl") -> Processor:
        if family not in made:
            patch = 16 if family == "qwen3_vl" else 14
            folder = tmp_path_factory.mktemp(family)
            settings = {
                "image_processor_type": "Qwen2VLImageProcessorFast",
                "patch_size": patch,
                "merge_size": 2,
                "temporal_patch_size": 2,
                "size": {"shortest_edge": (2 * patch) ** 2, "longest_edge": 400 * (2 * patch) ** 2},
            }
            (folder / "preprocessor_config.json").write_text(json.dumps(settings))
            start, end, image, video = seeing_tokenizer.convert_tokens_to_ids(list(MARKS))
            config = CONFIGS[family](
                image_token_id=image, video_token_id=video, vision_start_token_id=start, vision_end_token_id=end
            )
            processor = load_processor(str(folder), config, seeing_tokenizer)
            assert processor is not None
            made[family] = processor
        return made[family]

    return load


@pytest.fixture
def jsonl(tmp_path: Path):
    def write(rows: list[dict], name: str = "train.jsonl") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write
