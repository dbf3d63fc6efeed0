"""The vision built-ins: data that can be read, folders that transformers and whet load, the same prompts in both."""

import io
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoTokenizer, Qwen2_5_VLForConditionalGeneration
from transformers import Qwen3VLForConditionalGeneration as Qwen3VL

from whet.assets import resolve_data, resolve_model
from whet.assets.questions import TASKS, TEST_ROWS, Question
from whet.assets.store import SHAPES
from whet.assets.vision import TRAIN_ROWS
from whet.assets.vision_model import QWEN2_5, QWEN3, VISION_TOKENS
from whet.assets.warm_start.pictures import Encoder
from whet.config.schema.data import DataConfig
from whet.data.dataset import PromptDataset
from whet.errors import UserError
from whet.model.load import load_model, load_model_config
from whet.model.modality import placeholder_ids, vision_of
from whet.model.processor import load_processor

FAMILIES = {"whet/vision": QWEN2_5, "whet/vision3": QWEN3}


@pytest.fixture(scope="module")
def folders(whet_home):
    """The folders of both models."""
    return {name: Path(resolve_model(name, print)) for name in FAMILIES}


@pytest.fixture(scope="module")
def shapes(whet_home):
    return lambda split: resolve_data(f"whet/shapes@{split}", say=lambda line: None)


def pictures(row):
    return [picture["bytes"] for picture in row["images"] + [frame for video in row["videos"] for frame in video]]


@pytest.mark.parametrize("task", TASKS)
def test_files_have_rows_of_their_own_and_blanks_have_nothing_to_see(shapes, task):
    train, test, blank = (pq.read_table(shapes(f"{task}_{part}")).to_pylist() for part in ("train", "test", "blank"))
    assert (len(train), len(test), len(blank)) == (TRAIN_ROWS, TEST_ROWS, TEST_ROWS)
    assert not {tuple(pictures(row)) for row in train} & {tuple(pictures(row)) for row in test}
    for seen, unseen in zip(test, blank):
        assert (seen["problem"], seen["answer"]) == (unseen["problem"], unseen["answer"])
        assert len(pictures(seen)) == len(pictures(unseen))
    decoded = np.asarray(Image.open(io.BytesIO(pictures(blank[0])[0])))
    assert (decoded == decoded[0, 0]).all()
    assert test[0]["problem"].count("<image>") == len(test[0]["images"])
    assert test[0]["problem"].count("<video>") == len(test[0]["videos"])


def test_every_task_has_its_files():
    assert set(SHAPES) == {f"{task}_{part}" for task in TASKS for part in ("train", "test", "blank")}


def test_data_is_no_model():
    with pytest.raises(UserError, match="is data and no model"):
        resolve_model("whet/shapes", print)


@pytest.mark.parametrize("name", FAMILIES)
def test_folders_are_what_transformers_expects(folders, name):
    model, info = AutoModelForImageTextToText.from_pretrained(folders[name], output_loading_info=True)
    assert isinstance(model, Qwen3VL if name.endswith("3") else Qwen2_5_VLForConditionalGeneration)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert sum(parameter.numel() for parameter in model.parameters()) < 500_000
    tokenizer = AutoTokenizer.from_pretrained(folders[name])
    assert sorted(tokenizer.convert_tokens_to_ids(list(VISION_TOKENS))) == placeholder_ids(model.config)
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id


def test_chat_template_writes_text_and_pictures(folders):
    tokenizer = AutoTokenizer.from_pretrained(folders["whet/vision"])
    parts = [{"type": "image"}, {"type": "text", "text": "Hi"}, {"type": "video"}]
    chat = [{"role": "system", "content": "Look."}, {"role": "user", "content": parts}]
    assert tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) == (
        "<|im_start|>system\nLook.<|im_end|>\n"
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>Hi<|vision_start|><|video_pad|><|vision_end|>"
        "<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", FAMILIES)
def test_the_warm_start_shows_what_a_run_shows(folders, shapes, name, task):
    path = str(folders[name])
    model, config = load_model(path), load_model_config(path)
    tokenizer = AutoTokenizer.from_pretrained(path)
    processor = load_processor(path, config, tokenizer)
    template = "examples/format_prompt/shapes.jinja" if task != "locate" else None
    settings = DataConfig(prompt_key="problem", min_pixels=784, max_pixels=50176, format_prompt=template)
    prompt = PromptDataset(shapes(f"{task}_test"), settings, tokenizer, processor=processor)[3]

    row = pq.read_table(shapes(f"{task}_test")).to_pylist()[3]
    decoded = [Image.open(io.BytesIO(each)).convert("RGB") for each in pictures(row)]
    stem = "Answer: " if template else "The red shape is at the "
    media = {"frames": decoded} if row["videos"] else {"images": decoded}
    question = Question(row["problem"], row["answer"], (), stem=stem, **media)
    shown = Encoder(model, tokenizer, FAMILIES[name])(question)

    assert shown.ids.tolist() == prompt.ids
    kind = "pixel_values_videos" if row["videos"] else "pixel_values"
    assert torch.allclose(prompt.media.inputs[kind], shown.pixels, atol=1e-5)
    positions, _ = vision_of(model).positions(prompt)
    assert np.array_equal(positions, shown.positions.numpy())
