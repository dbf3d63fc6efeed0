from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from data.conftest import CONFIGS, MARKS, SEEING_CHAT, build_tokenizer
from PIL import Image
from transformers import LlavaConfig, Qwen2Config, Qwen2VLConfig
from transformers.models.auto.image_processing_auto import AutoImageProcessor

from whet.errors import UserError
from whet.model.grid_processor import Clip, GridProcessor
from whet.model.processor import WholeProcessor, load_processor


@pytest.fixture(scope="module")
def tokenizer():
    tokenizer = build_tokenizer(SEEING_CHAT)
    tokenizer.add_special_tokens({"additional_special_tokens": [*MARKS, "<image>"]})
    return tokenizer


def marks(tokenizer) -> dict[str, int]:
    names = ("vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id")
    return dict(zip(names, tokenizer.convert_tokens_to_ids(list(MARKS))))


def grid_folder(folder: Path, patch: int = 14, **changes) -> str:
    settings = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "patch_size": patch,
        "merge_size": 2,
        "temporal_patch_size": 2,
        "min_pixels": 56 * 56,
        "max_pixels": 28 * 28 * 60,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(settings | changes))
    return str(folder)


@pytest.fixture
def grid(tokenizer, tmp_path):
    def load(family: str = "qwen2_5_vl", **changes) -> GridProcessor:
        config = CONFIGS[family](**marks(tokenizer))
        processor = load_processor(grid_folder(tmp_path, **changes), config, tokenizer)
        assert isinstance(processor, GridProcessor)
        return processor

    return load


def test_target_sizes_are_those_of_the_models_processor(grid, tmp_path):
    processor = grid()
    own = AutoImageProcessor.from_pretrained(tmp_path)
    rng = np.random.default_rng(1)
    sizes = [tuple(int(2**x) for x in rng.uniform(0, 9, 2)) for _ in range(60)]
    for size in sizes:
        if max(size) > 200 * min(size):
            with pytest.raises(ValueError, match="200 times its other side"):
                processor.target_size(size)
            continue
        (_, height, width) = own(images=[Image.new("RGB", size)], return_tensors="pt")["image_grid_thw"][0].tolist()
        assert processor.target_size(size) == (width * 14, height * 14), size


def test_length_is_known_before_the_pixels(grid):
    processor = grid()
    text = "what <|vision_start|><|image_pad|><|vision_end|> is <|vision_start|><|video_pad|><|vision_end|> ?"
    image, frames = Image.new("RGB", (84, 56)), [Image.new("RGB", (56, 56))] * 3
    ids, inputs = processor.read(text, [image], [frames], [2.0], special=False)
    assert processor.length(text, [(84, 56)], [Clip(3, (56, 56), 2.0)], special=False) == len(ids) == 3 + 4 + 6 + 8
    assert inputs["image_grid_thw"].tolist() == [[1, 4, 6]]
    assert inputs["video_grid_thw"].tolist() == [[2, 4, 4]]
    assert inputs["second_per_grid_ts"].tolist() == [1.0]
    with pytest.raises(ValueError, match=r"1 place for images \(<image>\), and there are 0 images"):
        processor.length(text, [], [Clip(3, (56, 56), 2.0)], special=False)


def test_two_frames_make_one_patch_in_time(grid):
    """Against the layout that Qwen-VL documents: (time, rows, columns, merge, merge), then (channel, time, y, x)."""
    processor = grid(image_mean=[0.0] * 3, image_std=[1.0] * 3, rescale_factor=1.0)
    rng = np.random.default_rng(0)
    frames = [rng.integers(0, 255, (56, 84, 3), dtype=np.uint8) for _ in range(3)]
    made = processor.pixels([], [[Image.fromarray(frame) for frame in frames]])
    expected = []
    for time in range(2):
        pair = [frames[2 * time], frames[min(2 * time + 1, 2)]]  # the third frame stands twice
        for row in range(2):
            for column in range(3):
                for y in range(2):
                    for x in range(2):
                        top, left = (2 * row + y) * 14, (2 * column + x) * 14
                        patch = np.stack([frame[top : top + 14, left : left + 14] for frame in pair])
                        expected.append(patch.transpose(3, 0, 1, 2).reshape(-1))
    torch.testing.assert_close(made["pixel_values_videos"], torch.tensor(np.stack(expected), dtype=torch.float32))
    assert made["video_grid_thw"].tolist() == [[2, 4, 6]]


def test_a_still_video_is_an_image_in_time(grid):
    processor = grid()
    image = Image.effect_noise((56, 56), 80).convert("RGB")
    made = processor.pixels([image], [[image, image]])
    torch.testing.assert_close(made["pixel_values"], made["pixel_values_videos"], rtol=0, atol=0)


def test_what_a_checkpoint_holds_builds_the_same_processor(grid, tokenizer, tmp_path):
    (tmp_path / "video_preprocessor_config.json").write_text('{"size": {"longest_edge": 5}}')
    processor = grid()
    folder = tmp_path / "saved"
    folder.mkdir()
    processor.save_pretrained(folder)
    assert json.loads((folder / "video_preprocessor_config.json").read_text()) == {"size": {"longest_edge": 5}}
    again = load_processor(str(folder), Qwen2VLConfig(**marks(tokenizer)), tokenizer)
    image = Image.effect_noise((84, 56), 80).convert("RGB")
    assert again.target_size((500, 400)) == processor.target_size((500, 400))
    torch.testing.assert_close(again.pixels([image], [])["pixel_values"], processor.pixels([image], [])["pixel_values"])


def test_models_without_a_processor(tokenizer, tmp_path):
    assert load_processor(str(tmp_path), Qwen2Config(), tokenizer) is None
    assert load_processor(str(tmp_path), Qwen2VLConfig(**marks(tokenizer)), tokenizer) is None
    (tmp_path / "preprocessor_config.json").write_text("{")
    with pytest.raises(UserError, match=r"model_path: the processor in .* could not be read"):
        load_processor(str(tmp_path), Qwen2VLConfig(**marks(tokenizer)), tokenizer)


def test_other_models_read_images_through_their_own_processor(tokenizer, tmp_path):
    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps({"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 28}, "crop_size": 28})
    )
    (tmp_path / "processor_config.json").write_text(
        json.dumps(
            {
                "processor_class": "LlavaProcessor",
                "patch_size": 14,
                "vision_feature_select_strategy": "default",
                "num_additional_image_tokens": 1,
                "image_token": "<image>",
            }
        )
    )
    tokenizer.save_pretrained(tmp_path)
    LlavaConfig().save_pretrained(tmp_path)
    processor = load_processor(str(tmp_path), LlavaConfig(), tokenizer)
    assert isinstance(processor, WholeProcessor)
    assert processor.video_place is None
    text = "what is <image> and <image> ?"
    images = [Image.new("RGB", (40, 30)), Image.new("RGB", (30, 50))]
    ids, inputs = processor.read(text, images, [], [], special=True)
    token = tokenizer.convert_tokens_to_ids("<image>")
    assert ids.count(token) == 2 * 4
    assert inputs["pixel_values"].shape == (2, 3, 28, 28)
    assert processor.length(text, [image.size for image in images], [], special=True) == len(ids)
    assert processor.length("one " + text, [image.size for image in images], [], special=True) == len(ids) + 1
    torch.testing.assert_close(processor.pixels(images, [])["pixel_values"], inputs["pixel_values"])
    with pytest.raises(ValueError, match="0 places for videos"):
        processor.length(text, [], [Clip(2, (28, 28), 2.0)], special=True)
