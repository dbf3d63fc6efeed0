"""Chats with images to learn from."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from whet.config.schema.data import DataConfig
from whet.config.schema.jobs import SftConfig
from whet.data.dataset import BadRow, PromptDataset
from whet.data.demonstrations import DemonstrationDataset
from whet.errors import UserError

SAID = {"role": "assistant", "content": "one two"}


def asked(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def png(width: int = 56, height: int = 84) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), (100, 0, 0)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def read(tmp_path, seeing_tokenizer, processor_of):
    """Write rows as Parquet and read them as demonstrations of a model that sees."""

    def make(rows: list[dict[str, Any]], kind: type = DemonstrationDataset, sft: SftConfig | None = None, **keys: Any):
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
        config = DataConfig(**({"min_pixels": None, "image_dir": str(tmp_path)} | keys))
        processor, path = processor_of("qwen2_5_vl"), str(tmp_path / "rows.parquet")
        if kind is PromptDataset:
            return PromptDataset(path, config, seeing_tokenizer, processor=processor)
        ends = {seeing_tokenizer.convert_tokens_to_ids("|")}
        return DemonstrationDataset(path, config, sft or SftConfig(), seeing_tokenizer, ends, processor=processor)

    return make


def test_the_prompt_is_that_of_training_with_rewards(read, seeing_tokenizer):
    data = read([{"messages": [asked("what is <image> ?"), SAID], "images": [png()]}])
    ((sample,),) = data.take([0])
    (prompt,) = read([{"prompt": "what is <image> ?", "answer": "1", "images": [png()]}], PromptDataset)
    assert sample.prompt.ids == prompt.ids
    assert torch.equal(sample.prompt.media.inputs["pixel_values"], prompt.media.inputs["pixel_values"])
    assert seeing_tokenizer.decode(sample.ids) == "one two |"
    assert data.lengths == [len(prompt.ids) + 3]
    assert "images" not in sample.prompt.extra


def test_images_stand_before_the_first_turn_that_is_learned(read, seeing_tokenizer):
    row = {"messages": [asked("<image> ?"), SAID, asked("two <image> ?"), SAID], "images": [png(), png(28, 28)]}
    with pytest.raises(UserError, match=r"rows.parquet:1: turn 3 has an image .*sft.train_on=last"):
        read([row])
    ((sample,),) = read([row], sft=SftConfig(train_on="last")).take([0])
    assert sample.prompt.media.inputs["image_grid_thw"].tolist() == [[1, 6, 4], [1, 2, 2]]
    assert seeing_tokenizer.decode(sample.ids) == "one two |"


def test_rows_with_unusable_images_are_refused_or_left_out(read):
    rows = [
        {"messages": [asked("what is <image> ?"), SAID], "images": [png()]},
        {"messages": [asked("what is <image> ?"), SAID], "images": [b"no picture"]},
        {"messages": [asked("what is ?"), SAID], "images": [png()]},
    ]
    with pytest.raises(BadRow, match=r"rows.parquet:2: image 1 .*data.on_bad_media=skip"):
        read(rows)
    data = read(rows, on_bad_media="skip")
    assert len(data) == 1
    assert len(data.bad_rows) == 2
    assert "2 of 3 left out" in data.summary()
