from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_models import tiny_llama, tiny_tokenizer
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    CohereConfig,
    Gemma2Config,
    GptOssConfig,
    Lfm2Config,
    MambaConfig,
    PretrainedConfig,
)

from whet.errors import UserError
from whet.model import hub
from whet.model.attention import PackedAttention, Segment
from whet.model.load import (
    count_parameters,
    end_ids,
    head_of,
    hidden_states,
    load_model,
    load_model_config,
    load_tokenizer,
)

WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A complete model folder."""
    tiny_llama("sdpa").save_pretrained(tmp_path / "model")
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def _edit(folder: Path, **values: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))


@torch.no_grad()
def test_a_saved_model_comes_back(folder: Path) -> None:
    model, plain = load_model(str(folder)), tiny_llama("sdpa")
    assert not model.training
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), plain.parameters(), strict=True))
    ids = torch.tensor([3, 1, 4, 1, 5])
    hidden = hidden_states(model, ids, torch.arange(5), PackedAttention([Segment(0, 5)]))
    torch.testing.assert_close(head_of(model).logits(hidden), plain(ids[None]).logits[0])
    assert head_of(model).weight_VH.data_ptr() == model.get_input_embeddings().weight.data_ptr()


def test_dtype_and_override(folder: Path) -> None:
    model = load_model(
        str(folder), torch.float64, override={"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}
    )
    assert model.dtype == torch.float64
    assert model.config.rope_parameters["rope_theta"] == 5e5
    with pytest.raises(UserError, match=r"override_config: LlamaConfig has no field 'rope_tetha'"):
        load_model_config(str(folder), override={"rope_tetha": 1})
    load_model_config(str(folder), override={"embd_pdrop": 0.0})  # of other families: there is none to turn off
    with pytest.raises(UserError, match="has no field 'embd_pdrop'"):
        load_model_config(str(folder), override={"embd_pdrop": 0.1})


def test_count_parameters(folder: Path) -> None:
    assert count_parameters(str(folder)) == tiny_llama("sdpa").num_parameters()
    assert count_parameters("some/hub-id") is None


def _cut(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-100])


def _cut_header(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:100])


def _other_format(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")


def _missing_shard(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    index = {"metadata": {}, "weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}}
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize(
    "damage",
    [
        _cut,
        _cut_header,
        _other_format,
        _missing_shard,
        lambda f: (f / WEIGHTS).write_bytes(b""),
        lambda f: (f / WEIGHTS).unlink(),
        lambda f: (f / "config.json").write_text("{oops"),
        lambda f: (f / "config.json").write_text("{}"),
        lambda f: (f / "config.json").unlink(),
        lambda f: _edit(f, model_type="no-such-model"),
        lambda f: _edit(f, hidden_size="many"),
        lambda f: _edit(f, hidden_size=64),
        lambda f: _edit(f, vocab_size=99),
    ],
)
def test_damaged_folders_are_named(folder: Path, damage: Callable[[Path], object]) -> None:
    damage(folder)
    with pytest.raises(UserError, match=f"model_path: .*{folder}"):
        load_model(str(folder))


def test_weights_that_are_not_there_are_not_made_up(folder: Path) -> None:
    _edit(folder, num_hidden_layers=3)
    with pytest.raises(UserError, match=r"no weights for model\.layers\.2.* and 6 more"):
        load_model(str(folder))


def test_shapes_that_differ_are_named(folder: Path) -> None:
    _edit(folder, hidden_size=64)
    with pytest.raises(
        UserError, match=r"holds .* of shape \[.*\], where its config.json asks for \[.*64.*tensors differ"
    ):
        load_model(str(folder))


def test_pickles_and_pointers_in_place_of_weights_are_named(folder: Path) -> None:
    (folder / WEIGHTS).write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(UserError, match="run `git lfs pull`"):
        count_parameters(str(folder))


def test_a_hub_that_cannot_be_asked_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(url: str) -> None:
        asked.append(url)
        raise ConnectionError("no route")

    monkeypatch.setattr(hub, "get_hf_file_metadata", refuse)
    for load in (load_model_config, load_tokenizer):
        with pytest.raises(UserError, match=r"the hub cannot be asked \(no route\).*hf download org/no-such-model"):
            load("org/no-such-model")
    assert len(asked) == 2


def test_code_of_a_model_names_the_switch(folder: Path) -> None:
    _edit(folder, model_type="mine", auto_map={"AutoConfig": "conf.C"})
    with pytest.raises(UserError, match=r"worker\.actor\.model\.trust_remote_code=true runs it"):
        load_model_config(str(folder))


def test_damaged_weights_are_found_when_counting(folder: Path) -> None:
    _cut(folder)
    with pytest.raises(UserError, match=f"{WEIGHTS} are damaged"):
        count_parameters(str(folder))


@pytest.mark.parametrize("text", ["{", '{"version": "1.0"}', '{"added_tokens": [], "model": {"type": "Nope"}}', None])
def test_damaged_tokenizers_are_named(folder: Path, text: str | None) -> None:
    if text is None:
        (folder / "tokenizer.json").unlink()
    else:
        (folder / "tokenizer.json").write_text(text)
    with pytest.raises(UserError, match=f"tokenizer_path: .*{folder}"):
        load_tokenizer(str(folder))


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    for load in (load_model, load_model_config, load_tokenizer):
        with pytest.raises(UserError, match="nowhere"):
            load(str(tmp_path / "nowhere"))


def test_the_tokenizer_gets_a_padding_token(folder: Path) -> None:
    tokenizer = load_tokenizer(str(folder))
    assert tokenizer.pad_token_id == tokenizer.eos_token_id == 1


def test_end_ids(folder: Path) -> None:
    tokenizer, file = load_tokenizer(str(folder)), folder / "generation_config.json"
    file.write_text('{"eos_token_id": [5, 7]}')
    assert end_ids(str(folder), tokenizer) == {1, 5, 7}
    file.write_text('{"eos_token_id": 5}')
    assert end_ids(str(folder), tokenizer) == {1, 5}
    file.unlink()
    assert end_ids(str(folder), tokenizer) == {1}
    file.write_text("{")
    with pytest.raises(UserError, match=r"generation_config\.json could not be read"):
        end_ids(str(folder), tokenizer)


_SIZE = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
}


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (Gemma2Config(**_SIZE, head_dim=8), "soft-caps its attention"),
        (GptOssConfig(**_SIZE, head_dim=8, num_local_experts=2, num_experts_per_tok=1), "sink attention"),
        (CohereConfig(**_SIZE), r"scales its logits \(logit_scale\)"),
        (BloomConfig(vocab_size=40, hidden_size=32, n_layer=2, n_head=4), "2 of the 2 layers"),
        (MambaConfig(vocab_size=40, hidden_size=32, num_hidden_layers=2), "2 of the 2 layers"),
        (Lfm2Config(**_SIZE, layer_types=["conv", "full_attention"]), "1 of the 2 layers"),
    ],
)
def test_models_that_whet_would_run_wrongly_are_refused(config: PretrainedConfig, why: str, tmp_path: Path) -> None:
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=why):
        load_model(str(tmp_path))
