"""Rows with images and videos, from files to prompts."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from whet.config.schema.data import DataConfig
from whet.data.dataset import BadRow, PromptDataset
from whet.data.loader import PromptLoader
from whet.errors import UserError

PLACE = "<|vision_start|><|image_pad|><|vision_end|>"
VIDEO = "<|vision_start|><|video_pad|><|vision_end|>"


def png(width=56, height=28, shade=100) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), (shade, 0, 0)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def rows(tmp_path, seeing_tokenizer, processor_of):
    """Write rows as Parquet and read them as prompts of a model that sees."""

    def read(rows, family="qwen2_5_vl", limit_images=0, **keys) -> PromptDataset:
        for row in rows:
            row.setdefault("answer", "1")
        names = {name for row in rows for name in row}
        table = pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows])
        pq.write_table(table, tmp_path / "train.parquet")
        config = DataConfig(**({"min_pixels": None, "image_dir": str(tmp_path)} | keys))
        path = str(tmp_path / "train.parquet")
        return PromptDataset(path, config, seeing_tokenizer, processor=processor_of(family), limit_images=limit_images)

    return read


def test_an_image_takes_its_place_in_the_prompt(rows, seeing_tokenizer):
    data = rows([{"prompt": "what is <image> ?", "images": [png(56, 84)]}])
    (prompt,) = data
    assert prompt.text == f"user : what is {PLACE} ? | assistant :"
    pad = seeing_tokenizer.convert_tokens_to_ids("<|image_pad|>")
    single = seeing_tokenizer(prompt.text, add_special_tokens=False)["input_ids"]
    at = single.index(pad)
    assert prompt.ids == single[:at] + [pad] * 6 + single[at + 1 :]
    assert data.lengths == [len(prompt.ids)]
    assert prompt.media.inputs["image_grid_thw"].tolist() == [[1, 6, 4]]
    assert prompt.media.inputs["pixel_values"].shape == (24, 3 * 2 * 14 * 14)
    (image,) = prompt.media.images
    assert (image.size, image.mode) == ((56, 84), "RGB")
    assert "images" not in prompt.extra
    assert prompt.extra["answer"] == "1"


def test_text_and_images_in_one_batch(rows):
    data = rows(
        [
            {"prompt": "what ?"},
            {"prompt": "<image> one <image> two", "images": [png(28, 28), png(56, 56)]},
            {"prompt": "plus", "images": []},
        ]
    )
    text, seen, empty = data.take([0, 1, 2])
    assert text.media is None
    assert empty.media is None
    assert text.text == "user : what ? | assistant :"
    assert seen.media.inputs["image_grid_thw"].tolist() == [[1, 2, 2], [1, 4, 4]]
    assert data.lengths == [len(text.ids), len(seen.ids), len(empty.ids)]


def test_sizes_are_those_of_the_config(rows):
    row = {"prompt": "<image> ?", "images": [png(280, 140)]}
    counts = {}
    for keys in ({"max_pixels": 100 * 100}, {"min_pixels": 400 * 400}, {}):
        (prompt,) = rows([dict(row)], **keys)
        (image,) = prompt.media.images
        assert image.size[0] % 28 == image.size[1] % 28 == 0
        counts[str(keys)] = image.size
    assert list(counts.values()) == [(140, 56), (560, 280), (280, 140)]


def test_pixels_are_what_the_models_own_processor_makes(rows, processor_of):
    noise = np.random.default_rng(0).integers(0, 255, (84, 112, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, "PNG")
    (prompt,) = rows([{"prompt": "<image>", "images": [file.getvalue()]}])
    own = processor_of()._images(images=[Image.fromarray(noise)], return_tensors="pt")
    torch.testing.assert_close(prompt.media.inputs["pixel_values"], own["pixel_values"], rtol=0, atol=0)


def test_chats_bring_their_own_images(rows, tmp_path):
    (tmp_path / "a.png").write_bytes(png(28, 28))
    url = "data:image/png;base64," + base64.b64encode(png(56, 56)).decode()
    parts = [
        {"type": "image", "image": "a.png"},
        {"type": "text", "text": "or"},
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": " ?"},
    ]
    chat = [{"role": "system", "content": [{"type": "text", "text": "think"}]}, {"role": "user", "content": parts}]
    (prompt,) = rows([{"prompt": chat}])
    assert prompt.text == f"system : think | user : {PLACE}or{PLACE} ? | assistant :"
    assert prompt.media.inputs["image_grid_thw"].tolist() == [[1, 2, 2], [1, 4, 4]]
    bare = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "one"}]}]
    (prompt,) = rows([{"prompt": bare, "images": "a.png"}])
    assert prompt.text == f"user : {PLACE}one | assistant :"
    with pytest.raises(BadRow, match=r"train\.parquet:1: images stand both in the chat and in the column 'images'"):
        rows([{"prompt": chat, "images": ["a.png"]}])


def test_templates_see_images(rows, tmp_path):
    (tmp_path / "t.jinja").write_text("{{ '<image>' * images|length }}{{ content }} {{ images|length }} {{ level }}")
    data = rows(
        [{"prompt": "one", "images": [png(), png()], "level": "|"}, {"prompt": "two", "level": ":"}],
        format_prompt=str(tmp_path / "t.jinja"),
    )
    assert [prompt.text for prompt in data] == [
        f"user : {PLACE}{PLACE}one 2 | | assistant :",
        "user : two 0 : | assistant :",
    ]


def test_a_column_of_another_name_and_json_in_a_cell(tmp_path, seeing_tokenizer, processor_of):
    (tmp_path / "a.png").write_bytes(png())
    (tmp_path / "train.csv").write_text(
        'prompt,answer,photo\n<image><image>,1,"[""a.png"", ""a.png""]"\n<image>,2,a.png\nx,3,\n'
    )
    config = DataConfig(image_key="photo", image_dir=str(tmp_path), min_pixels=None)
    data = PromptDataset(str(tmp_path / "train.csv"), config, seeing_tokenizer, processor=processor_of())
    assert [len(prompt.media.images) if prompt.media else 0 for prompt in data] == [2, 1, 0]


def test_a_model_without_chat_template(tmp_path, seeing_tokenizer, processor_of, jsonl, monkeypatch):
    monkeypatch.setattr(seeing_tokenizer, "chat_template", None)
    (tmp_path / "a.png").write_bytes(png())
    path = jsonl([{"prompt": "one <image> two", "answer": 1, "images": ["a.png"]}])
    config = DataConfig(image_dir=str(tmp_path), min_pixels=None)
    (prompt,) = PromptDataset(str(path), config, seeing_tokenizer, processor=processor_of())
    assert prompt.text == f"one {PLACE} two"
    assert prompt.ids[0] == seeing_tokenizer.bos_token_id
    assert len(prompt.media.images) == 1


def test_templates_that_know_parts_only_get_parts(rows):
    parts_only = (
        "{% for m in messages %}{% for p in m.content %}{% if p.type == 'image' %}<|image_pad|>{% else %}{{ p.text }}"
        "{% endif %}{% endfor %} | {% endfor %}"
    )
    data = rows([{"prompt": "one"}, {"prompt": "two <image>", "images": [png()]}], override_chat_template=parts_only)
    assert [prompt.text for prompt in data] == ["one | ", "two <|image_pad|> | "]


def test_a_template_that_writes_no_image_is_noticed(rows):
    with pytest.raises(BadRow, match=r"train\.parquet:1: the prompt has 0 places for images \(<image>\), .* 1 image"):
        rows([{"prompt": "<image>", "images": [png()]}], override_chat_template="{{ messages|length }}")


def frames(count: int) -> list[bytes]:
    return [png(56, 28, shade=20 * index) for index in range(count)]


def test_videos_of_qwen2_5(rows, seeing_tokenizer):
    (prompt,) = rows([{"prompt": "<video> what ?", "videos": [frames(5)]}], video_fps=4.0)
    assert prompt.text == f"user : {VIDEO} what ? | assistant :"
    inputs = prompt.media.inputs
    assert inputs["video_grid_thw"].tolist() == [[3, 2, 4]]
    assert inputs["second_per_grid_ts"].tolist() == [0.5]
    assert inputs["pixel_values_videos"].shape == (24, 1176)
    assert prompt.ids.count(seeing_tokenizer.convert_tokens_to_ids("<|video_pad|>")) == 6
    assert len(prompt.media.videos[0]) == 5


def test_videos_of_qwen3_are_read_with_the_time(rows, seeing_tokenizer):
    row = {"prompt": "<video> and <image>", "videos": [frames(4)], "images": [png(64, 32)]}
    (prompt,) = rows([row], family="qwen3_vl")
    start, end, image, video = seeing_tokenizer.convert_tokens_to_ids(
        ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
    )
    marks = [token for token in prompt.ids if token in (start, end, image, video)]
    # Frames of 56×28 are seen in 64×32: two tokens at each of two times.
    assert marks == [start, video, video, end, start, video, video, end, start, image, image, end]
    written = seeing_tokenizer(
        f"user : <0.2 seconds>{VIDEO}<1.2 seconds>{VIDEO} and {PLACE} | assistant :", add_special_tokens=False
    )["input_ids"]
    single = [t for t, before in zip(prompt.ids, [None, *prompt.ids]) if not (t == before and t in (image, video))]
    assert single == written
    assert "second_per_grid_ts" not in prompt.media.inputs


BAD = [
    ({"prompt": "x", "images": [png()]}, r"0 places for images \(<image>\), and there are 1 image"),
    ({"prompt": "<image>"}, r"1 place for images .* 0 images"),
    ({"prompt": "<image><image>", "images": [png()]}, "2 places for images .* 1 image"),
    ({"prompt": "<|image_pad|>"}, "1 place for images"),
    ({"prompt": "<video>"}, "1 place for videos"),
    ({"prompt": "<image>", "images": ["gone.png"]}, r"image 1 \(column 'images'\) names a file that is not there"),
    ({"prompt": "<image>", "images": [b"hello"]}, r"image 1 \(column 'images'\) is no picture"),
    ({"prompt": "<image>", "images": [None]}, r"image 1 \(column 'images'\) is a NoneType"),
    ({"prompt": "<image>", "images": [png(3000, 10)]}, "3000×10 pixels: longer than 200 times its other side"),
    ({"prompt": "<image><image>", "images": [png(), png()]}, r"2 images, more than worker\.rollout\.limit_images=1"),
    ({"prompt": "<video>", "videos": [[]]}, r"video 1 \(column 'videos'\) has no frames"),
    ({"prompt": "<video>", "videos": [[png(), b"x"]]}, r"video 1 .* number 2 is no picture"),
    ({"prompt": "<video>", "videos": [[png(), png(28, 28)]]}, r"frames of different sizes \(28×28 and 56×28\)"),
    ({"prompt": "<image>", "images": [png()[:60]]}, r"image 1 \(column 'images'\) (cannot be decoded|is no picture)"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "message"), BAD)
def test_bad_media_stop_the_run_or_are_left_out(rows, row, message):
    good = {"prompt": "what ?"}
    with pytest.raises(UserError, match=rf"train\.parquet:2: .*{message}.*data\.on_bad_media=skip"):
        rows([dict(good), dict(row)], limit_images=1, check_media="full")
    data = rows([dict(good), dict(row)], limit_images=1, check_media="full", on_bad_media="skip")
    assert [prompt.uid for prompt in data] == ["train.parquet:1"]
    assert "(1 of 2 left out: 1 with unusable images or videos, such as train.parquet:2: " in data.summary()
    with pytest.raises(UserError, match=r"data\.train_files: no row has usable images or videos.*train\.parquet:1"):
        rows([dict(row)], limit_images=1, check_media="full", on_bad_media="skip")


def test_image_tokens_are_never_cut(rows):
    many = [{"prompt": "<image>", "images": [png(280, 280)]}, {"prompt": "<image>", "images": [png(28, 28)]}]
    data = rows([dict(row) for row in many], max_prompt_length=50)
    assert [prompt.uid for prompt in data] == ["train.parquet:2"]
    assert "(1 of 2 left out: longer than 50 tokens)" in data.summary()
    with pytest.raises(UserError, match=r"train\.parquet:1 has 107 tokens.*or lower data\.max_pixels"):
        rows([dict(row) for row in many], max_prompt_length=50, filter_overlong_prompts=False)


def test_a_file_that_vanishes_costs_no_step(rows, tmp_path):
    for name in "abcd":
        (tmp_path / f"{name}.png").write_bytes(png())
    data = rows([{"prompt": "<image>", "images": [f"{name}.png"]} for name in "abcd"])
    warnings: list[str] = []
    loader = PromptLoader(data, 2, shuffle=False, seed=0, warn=warnings.append)
    (tmp_path / "b.png").unlink()
    (tmp_path / "c.png").write_bytes(png(560, 560)[:80])
    assert [prompt.uid for prompt in loader.next_batch()] == ["train.parquet:1", "train.parquet:4"]
    assert [prompt.uid for prompt in loader.next_batch()] == ["train.parquet:1", "train.parquet:4"]
    assert "train.parquet:2: image 1 (column 'images') names a file that is not there" in warnings[0]
    assert [prompt.uid for batch in loader for prompt in batch] == ["train.parquet:1", "train.parquet:4"]
    for name in "ad":
        (tmp_path / f"{name}.png").unlink()
    with pytest.raises(UserError, match=r"can be read no more.*data\.image_dir"):
        loader.next_batch()


def test_a_file_that_grows_is_not_cut_either(rows, tmp_path):
    (tmp_path / "a.png").write_bytes(png())
    data = rows([{"prompt": "<image>", "images": ["a.png"]}], max_prompt_length=50)
    (tmp_path / "a.png").write_bytes(png(560, 560))
    with pytest.raises(BadRow, match=r"train\.parquet:1: .*changed.*max_prompt_length=50"):
        data.take([0])


def test_a_model_of_text_refuses_images(jsonl, chat_tokenizer, tmp_path):
    Path(tmp_path / "a.png").write_bytes(png())
    for on_bad_media in ("stop", "skip"):
        config = DataConfig(on_bad_media=on_bad_media)
        with pytest.raises(
            UserError, match=r"train\.jsonl:1: column 'images' is filled, and the model reads text only"
        ):
            PromptDataset(str(jsonl([{"prompt": "<image>", "answer": 1, "images": ["a.png"]}])), config, chat_tokenizer)
    (prompt,) = PromptDataset(str(jsonl([{"prompt": "one <image>", "answer": 1}])), DataConfig(), chat_tokenizer)
    assert prompt.text == "user : one <image> | assistant :"
