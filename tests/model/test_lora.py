"""Adapters by PEFT: only they train, off means the first weights, files are PEFT's, merged is the same model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from learn.samples import batch
from tiny_models import tiny_llama, tiny_tokenizer
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from whet.config.schema.model import LoraConfig
from whet.errors import UserError
from whet.learn.scoring import score
from whet.model.export import export_merged
from whet.model.lora import (
    adapter_state,
    adapters_off,
    add_adapters,
    check_adapters,
    load_adapters,
    merged_weights,
    save_adapters,
)
from whet.model.modality import has_adapters
from whet.model.names import folder_weights

IDS = torch.tensor([[3, 14, 15, 9, 2, 6]])


def _adapted(lora: LoraConfig | None = None, trained: bool = True, implementation: str = "whet") -> PreTrainedModel:
    """The tiny model with adapters that have learned something."""
    model = tiny_llama(implementation)
    add_adapters(model, lora or LoraConfig(rank=4, alpha=8), "the/base", seed=1)
    if trained:
        torch.manual_seed(5)
        for p in model.parameters():
            if p.requires_grad:
                torch.nn.init.normal_(p, std=0.2)
    return model


def _log_probs(model: PreTrainedModel) -> Tensor:
    with torch.no_grad():
        return score(model, batch(), 1.0, True).log_probs_BT


def test_new_adapters_change_nothing_and_alone_are_trained() -> None:
    model = _adapted(trained=False)
    assert torch.equal(_log_probs(model), _log_probs(tiny_llama("whet")))
    score(model, batch(), 1.0, True).log_probs_BT.sum().backward()
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert trained == {name for name, p in model.named_parameters() if p.grad is not None}
    assert len(trained) == 2 * 2 * 7  # A and B of seven projections in two layers
    assert all(".lora_A." in name or ".lora_B." in name for name in trained)


def test_the_first_values_are_a_function_of_the_seed_and_leave_the_random_state_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    state = {seed: adapter_state(_of_seed(seed)) for seed in (1, 2)}
    again = adapter_state(_of_seed(1))
    torch.manual_seed(3)
    model = tiny_llama("whet")
    torch.manual_seed(3)
    add_adapters(model, LoraConfig(rank=4), "base", seed=1)
    assert torch.rand(1) == expected
    assert all(torch.equal(again[name], state[1][name]) for name in again)
    assert any(not torch.equal(again[name], state[2][name]) for name in again)


def _of_seed(seed: int) -> PreTrainedModel:
    model = tiny_llama("whet")
    add_adapters(model, LoraConfig(rank=4), "base", seed)
    return model


def test_off_is_the_first_model_and_on_again_is_the_adapted_one() -> None:
    model, first = _adapted(), _log_probs(tiny_llama("whet"))
    adapted = _log_probs(model)
    assert (adapted - first).abs().max() > 0.1
    with adapters_off(model):
        assert torch.equal(_log_probs(model), first)
    assert torch.equal(_log_probs(model), adapted)
    assert sum(p.requires_grad for p in model.parameters()) == 28


def test_an_error_while_they_are_off_turns_them_on_again() -> None:
    model = _adapted()
    adapted = _log_probs(model)
    with pytest.raises(ValueError, match="empty"), adapters_off(model):
        score(model, [], 1.0, True)
    assert torch.equal(_log_probs(model), adapted)


def test_a_model_without_adapters_is_left_alone() -> None:
    model = tiny_llama("whet")
    assert not has_adapters(model)
    with adapters_off(model):
        assert all(p.requires_grad for p in model.parameters())
    assert {name: t.data_ptr() for name, t in merged_weights(model)} == {
        name: t.data_ptr() for name, t in model.state_dict().items()
    }


def test_adapters_have_the_dtype_of_their_layers() -> None:
    model = tiny_llama("whet").to(torch.bfloat16)
    add_adapters(model, LoraConfig(rank=4), "base", seed=1)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


def test_files_are_those_of_peft(tmp_path: Path) -> None:
    from peft import PeftModel

    model = _adapted(LoraConfig(rank=4, alpha=8, exclude_modules=r".*layers\.1\.mlp.*"))
    save_adapters(model, tmp_path)
    saved = json.loads((tmp_path / "adapter_config.json").read_text())
    assert saved["base_model_name_or_path"] == "the/base"
    assert (saved["r"], saved["lora_alpha"], saved["peft_type"], saved["inference_mode"]) == (4, 8, "LORA", True)
    loaded = PeftModel.from_pretrained(tiny_llama("sdpa"), str(tmp_path))
    assert set(loaded.state_dict()) - {"base_model.model." + name for name in model.state_dict()} == set()
    with torch.no_grad():
        theirs = loaded(IDS).logits
        ours = _sdpa(model)(IDS).logits
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-6)


def _sdpa(model: PreTrainedModel) -> PreTrainedModel:
    model.set_attn_implementation("sdpa")
    return model


def test_peft_writes_the_same_file(tmp_path: Path) -> None:
    from peft import PeftModel

    model = _adapted()
    save_adapters(model, tmp_path / "ours")
    theirs = PeftModel.from_pretrained(tiny_llama("sdpa"), str(tmp_path / "ours"))
    theirs.save_pretrained(str(tmp_path / "theirs"), save_embedding_layers=False)
    files = [(tmp_path / who / "adapter_model.safetensors").read_bytes() for who in ("ours", "theirs")]
    assert files[0] == files[1]


def test_saved_and_loaded_to_the_bit(tmp_path: Path) -> None:
    model, fresh = _adapted(), _adapted(trained=False)
    save_adapters(model, tmp_path)
    load_adapters(fresh, tmp_path)
    assert torch.equal(_log_probs(fresh), _log_probs(model))
    assert sum(p.requires_grad for p in fresh.parameters()) == 28


def test_adapters_of_another_shape_or_a_damaged_file_are_refused(tmp_path: Path) -> None:
    save_adapters(_adapted(), tmp_path)
    for other in (LoraConfig(rank=8), LoraConfig(rank=4, target_modules="q_proj")):
        with pytest.raises(UserError, match="of other layers or of another rank"):
            load_adapters(_adapted(other), tmp_path)
    file = tmp_path / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(UserError, match="could not be read"):
        load_adapters(_adapted(), tmp_path)


def test_merged_weights_are_a_plain_model_that_computes_the_same() -> None:
    model, plain = _adapted(), tiny_llama("whet")
    weights = dict(merged_weights(model))
    assert weights.keys() == plain.state_dict().keys()
    plain.load_state_dict(weights)
    torch.testing.assert_close(_log_probs(plain), _log_probs(model), rtol=0, atol=1e-4)


def test_other_engines_get_merged_weights_under_plain_names() -> None:
    weights, plain = dict(folder_weights(_adapted())), dict(folder_weights(tiny_llama("whet")))
    assert weights.keys() == plain.keys()
    changed = {name for name, t in weights.items() if not torch.equal(t, plain[name])}
    assert changed == {name for name in plain if name.endswith("_proj.weight")}


def _merged_in_float64(model: PreTrainedModel) -> dict[str, tuple[Tensor, Tensor]]:
    """Return each adapted weight and the sum of the sizes of its terms, by its name in a plain model."""
    found = {}
    for name, module in model.named_modules():
        if hasattr(module, "lora_A"):
            A, B = (matrix["default"].weight.detach().double() for matrix in (module.lora_A, module.lora_B))
            base, scale = module.base_layer.weight.detach().double(), module.scaling["default"]
            terms = base.abs() + scale * (B.abs() @ A.abs())
            found[name.removeprefix("base_model.model.") + ".weight"] = base + scale * (B @ A), terms
    assert len(found) > 7
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_merged_folder_loads_in_transformers(tmp_path: Path, dtype: torch.dtype) -> None:
    tiny_llama("sdpa").to(dtype).save_pretrained(tmp_path / "base")
    model = tiny_llama("whet").to(dtype)
    add_adapters(model, LoraConfig(rank=4), str(tmp_path / "base"), seed=1)
    for p in model.parameters():
        if p.requires_grad:
            torch.nn.init.normal_(p, std=0.1)
    save_adapters(model, tmp_path / "adapters")
    tiny_tokenizer().save_pretrained(tmp_path / "adapters")
    export_merged(tmp_path / "adapters", tmp_path / "merged", str(tmp_path / "base"))
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype="auto")
    assert loaded.dtype == dtype
    assert loaded.state_dict().keys() == tiny_llama("sdpa").state_dict().keys()
    for name, (exact, size) in _merged_in_float64(model).items():  # rounded: the product's terms, their sum, the result
        assert ((loaded.state_dict()[name].double() - exact).abs() <= 2 * torch.finfo(dtype).eps * size).all(), name
    assert AutoTokenizer.from_pretrained(tmp_path / "merged").decode([7]) == "7"
    with pytest.raises(UserError, match="not an empty folder"):
        export_merged(tmp_path / "adapters", tmp_path / "merged", str(tmp_path / "base"))


@pytest.mark.parametrize(
    ("targets", "exclude", "layers"),
    [
        ("all-linear", None, 14),
        ("all-linear", "down_proj,up_proj", 10),
        ("q_proj", None, 2),
        ("q_proj,v_proj", None, 4),
        ("[q_proj, 'v_proj']", None, 4),
        (r".*layers\.0\..*", None, 7),
        (r".*self_attn.*", r".*\.[kv]_proj", 4),
        ("self_attn.q_proj", None, 2),
        (".*", "lm_head", 14),
    ],
)
def test_targets(targets: str, exclude: str | None, layers: int) -> None:
    lora = LoraConfig(rank=2, target_modules=targets, exclude_modules=exclude)
    model = _adapted(lora, trained=False)
    adapters = [p for p in model.parameters() if p.requires_grad]
    assert len(adapters) == 2 * layers
    assert check_adapters(tiny_llama("whet").config, lora) == sum(p.numel() for p in adapters)


@pytest.mark.parametrize(
    ("lora", "words"),
    [
        (
            LoraConfig(rank=17),
            r"rank=17 is more than model\.layers\.0\.self_attn\.k_proj has \(32 to 16\): set it to 16",
        ),
        (
            LoraConfig(rank=2, target_modules="q_prj"),
            r"target_modules=q_prj: .* no linear layer called q_prj; .*q_proj",
        ),
        (LoraConfig(rank=2, target_modules="q_proj,qkv"), r"no linear layer called qkv"),
        (LoraConfig(rank=2, target_modules="q_proj|v_proj"), r"matches no linear layer .* whole name, such as model\."),
        (LoraConfig(rank=2, exclude_modules=".*"), r"exclude_modules=\.\* leaves none .*target_modules=all-linear"),
        (LoraConfig(rank=2, target_modules="lm_head"), r"takes in the output head"),
        (LoraConfig(rank=2, target_modules=".*"), r"takes in the output head"),
        (LoraConfig(rank=2, target_modules="embed_tokens"), r"no linear layer called embed_tokens"),
    ],
)
def test_keys_that_do_not_fit_the_model(lora: LoraConfig, words: str) -> None:
    with pytest.raises(UserError, match=rf"^worker\.actor\.model\.lora\..*{words}"):
        check_adapters(tiny_llama("whet").config, lora)
