"""Small vision-language models of real classes: Qwen2.5-VL and Qwen3-VL, a few layers deep.

The folders that `save` and `write_vision_folder` write have what a folder of the real models has: weights, config,
tokenizer with the vision tokens, chat template, and the settings of the image and video processors. Only the sizes are
small.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import (
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)

from whet.assets.folder import sampling, shipped_tokenizer, write_folder
from whet.assets.tokenizer import learn_tokens

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
VISION_START, VISION_END = "<|vision_start|>", "<|vision_end|>"
IMAGE_PAD, VIDEO_PAD = "<|image_pad|>", "<|video_pad|>"
VISION_TOKENS = (VISION_START, VISION_END, IMAGE_PAD, VIDEO_PAD)

# Turns as ChatML has them; an image or a video of a turn is one placeholder between the two vision marks, which the
# processor repeats as often as the model has features for it.
CHAT_TEMPLATE = """\
{%- macro part(it) -%}
  {%- if it.type in ('image', 'image_url') -%}<|vision_start|><|image_pad|><|vision_end|>
  {%- elif it.type == 'video' -%}<|vision_start|><|video_pad|><|vision_end|>
  {%- else -%}{{ it.text }}
  {%- endif -%}
{%- endmacro -%}
{%- for message in messages -%}
  {{- '<|im_start|>' + message.role + '\\n' -}}
  {%- if message.content is string -%}{{- message.content -}}
  {%- else -%}{%- for it in message.content -%}{{- part(it) -}}{%- endfor -%}
  {%- endif -%}
  {{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


@dataclass(frozen=True, slots=True)
class Family:
    """Differences between the two model families."""

    config: Callable[..., PretrainedConfig]
    model: type[PreTrainedModel]
    patch: int  # pixels of a patch's side
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    image_processor: str
    video_processor: str
    processor: str


QWEN2_5 = Family(
    config=Qwen2_5_VLConfig,
    model=Qwen2_5_VLForConditionalGeneration,
    patch=14,
    mean=(0.48145466, 0.4578275, 0.40821073),
    std=(0.26862954, 0.26130258, 0.27577711),
    image_processor="Qwen2VLImageProcessor",
    video_processor="Qwen2VLVideoProcessor",
    processor="Qwen2_5_VLProcessor",
)
QWEN3 = Family(
    config=Qwen3VLConfig,
    model=Qwen3VLForConditionalGeneration,
    patch=16,
    mean=(0.5, 0.5, 0.5),
    std=(0.5, 0.5, 0.5),
    image_processor="Qwen2VLImageProcessorFast",
    video_processor="Qwen3VLVideoProcessor",
    processor="Qwen3VLProcessor",
)


def make_vision_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """A tokenizer with the special tokens of Qwen's vision-language models, learned from `texts`."""
    return with_vision_tokens(learn_tokens(texts, vocab_size, [PAD, START, END, *VISION_TOKENS]))


def with_vision_tokens(tokens: Tokenizer) -> PreTrainedTokenizerFast:
    """Return `tokens` as transformers' tokenizer, with Qwen's special tokens and a chat template."""
    return PreTrainedTokenizerFast(
        tokenizer_object=tokens,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[START, *VISION_TOKENS],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )


def make_vision_config(tokenizer: PreTrainedTokenizerFast, family: Family) -> PretrainedConfig:
    """The config of a model of less than half a million parameters."""
    text: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "intermediate_size": 192,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        # The usual 0.02 suits widths of thousands; at this width it would start the layers near zero and learn slowly.
        "initializer_range": 0.08,
        # A small base, because neighbouring tokens of a picture differ by one: rows and columns must turn visibly.
        "rope_parameters": {"rope_type": "default", "rope_theta": 10.0, "mrope_section": [2, 3, 3]},
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    vision: dict[str, Any] = {
        "depth": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_heads": 4,
        "patch_size": family.patch,
        "out_hidden_size": 64,
        "initializer_range": 0.08,
    }
    marks: dict[str, Any] = {
        f"{name}_token_id": tokenizer.convert_tokens_to_ids(token)
        for name, token in zip(("vision_start", "vision_end", "image", "video"), VISION_TOKENS)
    }
    if family is QWEN3:
        text |= {"head_dim": 16, "tie_word_embeddings": True}
        text["rope_parameters"]["mrope_interleaved"] = True
        vision |= {"num_position_embeddings": 64, "deepstack_visual_indexes": [0]}
    else:
        vision |= {"fullatt_block_indexes": [1], "window_size": 112}
    return family.config(
        text_config=text,
        vision_config=vision,
        tie_word_embeddings=True,
        architectures=[family.model.__name__],
        dtype="float32",
        **marks,
    )


def make_vision_model(tokenizer: PreTrainedTokenizerFast, family: Family) -> PreTrainedModel:
    """A model with fresh weights."""
    model = family.model(make_vision_config(tokenizer, family))
    model.generation_config = sampling(tokenizer)
    return model


def image_settings(family: Family) -> dict[str, Any]:
    """Return the content of `preprocessor_config.json`; image sizes may be as small as one token."""
    return {
        "processor_class": family.processor,
        "image_processor_type": family.image_processor,
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": list(family.mean),
        "image_std": list(family.std),
        "rescale_factor": 1 / 255,
        "resample": 3,
        "merge_size": 2,
        "patch_size": family.patch,
        "temporal_patch_size": 2,
        "size": {"shortest_edge": (2 * family.patch) ** 2, "longest_edge": 256 * (2 * family.patch) ** 2},
    }


def save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, family: Family, folder: Path) -> None:
    """Write the Hugging Face folder of a model."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    _write_processors(family, folder)


def write_vision_folder(name: str, family: Family, folder: Path) -> None:
    """Write the Hugging Face folder of the built-in `name` with its shipped weights."""
    tokenizer = with_vision_tokens(shipped_tokenizer(name))
    write_folder(name, make_vision_config(tokenizer, family), tokenizer, folder)
    _write_processors(family, folder)


def _write_processors(family: Family, folder: Path) -> None:
    """Write the settings of the image and the video processor."""
    images = image_settings(family)
    videos = {name: value for name, value in images.items() if name != "image_processor_type"}
    videos |= {"video_processor_type": family.video_processor}
    for file, settings in {"preprocessor_config.json": images, "video_preprocessor_config.json": videos}.items():
        (folder / file).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
