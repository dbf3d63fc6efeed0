"""Counts of parameters against transformers' own classes on the meta device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from whet.errors import UserError
from whet.planning.models import MODELS, config_of, find_config, find_name
from whet.planning.shapes import _count, shape_of

# One of each architecture and size class: parameters as the model pages state them where they do.
PUBLIC = {
    "SmolLM2-135M": 134_515_008,
    "Qwen2.5-0.5B": 494_032_768,
    "Qwen2.5-7B": 7_615_616_512,
    "Qwen2.5-72B": 72_706_203_648,
    "Qwen3-1.7B": 1_720_574_976,
    "Qwen3-30B-A3B": 30_532_122_624,
    "Qwen2.5-VL-7B": 8_292_166_656,
    "Llama-3.1-8B": 8_030_261_248,
    "DeepSeek-R1-Distill-Qwen-1.5B": 1_777_088_000,
}
BUILT = [
    "SmolLM2-360M",
    "Qwen2.5-1.5B",
    "Qwen3-4B",
    "Qwen3-30B-A3B",
    "Qwen2.5-VL-3B",
    "Qwen3-VL-2B",
    "Qwen3-VL-30B-A3B",
]


@pytest.mark.parametrize("name", PUBLIC)
def test_counts_are_the_published_ones(name: str) -> None:
    assert shape_of(config_of(name)).parameters == PUBLIC[name]


@pytest.mark.parametrize("name", BUILT)
def test_counts_are_those_of_the_classes(name: str) -> None:
    config = config_of(name)
    kind: Any = AutoModelForImageTextToText if hasattr(config, "vision_config") else AutoModelForCausalLM
    with torch.device("meta"):
        model = kind.from_config(config)
    model.tie_weights()
    shape = shape_of(config)
    assert shape.parameters == model.num_parameters()
    visual = getattr(model.base_model, "visual", None)
    assert shape.tower == (sum(p.numel() for p in visual.parameters()) if visual is not None else 0)


def test_biases_and_families_that_are_not_counted_are_built() -> None:
    sizes: dict[str, Any] = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 128,
    }
    for kind, more in (
        ("llama", {"attention_bias": True, "mlp_bias": True}),
        ("mistral", {}),
        ("gemma2", {"head_dim": 16}),
        ("qwen3", {"attention_bias": True, "head_dim": 32}),
    ):
        config = AutoConfig.for_model(kind, **sizes, **more)
        model = AutoModelForCausalLM.from_config(config)
        assert shape_of(config).parameters == model.num_parameters(), kind
    assert _count(AutoConfig.for_model("gemma2", **sizes)) is None


def test_every_entry_has_a_shape() -> None:
    for name in MODELS:
        shape = shape_of(config_of(name))
        assert shape.parameters > shape.layer_weights // (16 if shape.experts else 1) > 0
        assert shape.read_by(1) <= shape.read_by(64) <= shape.parameters


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "Qwen2.5-7B"),
        ("qwen2.5-math-7b", "Qwen2.5-7B"),
        ("Qwen/Qwen2.5-Coder-7B-Instruct", "Qwen2.5-7B"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "Llama-3-8B"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "Qwen3-30B-A3B"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "SmolLM2-135M"),
        ("whet/smollm2", "SmolLM2-135M"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "Qwen2.5-VL-7B"),
        ("Qwen/Qwen9-7B", None),
    ],
)
def test_names_of_the_hub_are_found(given: str, found: str | None) -> None:
    assert find_name(given) == found


def test_a_folder_is_read_without_weights(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no config\.json"):
        find_config(str(tmp_path))
    config_of("Qwen3-0.6B").save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "qwen3"
    name, config = find_config(str(tmp_path))
    assert (name, shape_of(config).parameters) == (tmp_path.name, 596_049_920)


def test_an_unknown_model_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"did you mean Qwen2\.5-7B.*Llama-3\.1-8B"):
        find_config("Qwen/Qwen2.5-7BB")
