"""Vision-language models: loading, positions, names of weights, frozen towers, adapters, and the fused decoder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from model.tiny_vision import IMAGE, KINDS, VIDEO, mixed_prompts, mixed_samples, theirs, tiny_vision, vision_prompt
from safetensors.torch import load_file
from torch import Tensor
from transformers import (
    AutoModelForImageTextToText,
    CLIPVisionConfig,
    Gemma3Config,
    LlamaConfig,
    LlavaConfig,
    PretrainedConfig,
    PreTrainedModel,
)

from whet.config.schema.model import LoraConfig
from whet.errors import UserError
from whet.learn.scoring import score
from whet.learn.value_head import ValueModel
from whet.model import attention
from whet.model.export import export_merged
from whet.model.fused import decoder_of, fuse, make_exact
from whet.model.load import load_backbone, load_model
from whet.model.lora import add_adapters, check_adapters, save_adapters
from whet.model.modality import check_prompt, freeze_tower, placeholder_ids, vision_of
from whet.model.names import folder_weights
from whet.types import Media, Prompt, Sample

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def _gradients(model: PreTrainedModel) -> dict[str, Tensor]:
    model.zero_grad()
    score(model, mixed_samples(model.config, n=1), 1.0, share_prefix=True).log_probs_BT.sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_is_opened_with_its_tower_and_saved_under_its_names(kind: str, tmp_path: Path) -> None:
    saved = tiny_vision(kind, ours=False)
    saved.save_pretrained(tmp_path)
    model = load_model(str(tmp_path))
    assert type(model) is type(saved)
    assert model.config.text_config._attn_implementation == "whet"
    assert model.config.vision_config._attn_implementation == "sdpa"
    files = load_file(tmp_path / "model.safetensors")
    weights = dict(folder_weights(model))
    assert weights.keys() == files.keys()
    assert all(torch.equal(weights[name], tensor) for name, tensor in files.items())
    backbone = ValueModel(load_backbone(str(tmp_path)))
    torch.nn.init.ones_(backbone.head.weight)
    samples = mixed_samples(model.config, n=1)
    shared, alone = (backbone.response_values(samples, share) for share in (True, False))
    torch.testing.assert_close(shared, alone, rtol=1e-4, atol=1e-4)
    assert len(set(shared[:, 0].tolist())) == len(samples)


@pytest.mark.parametrize("kind", KINDS)
def test_positions_are_those_of_transformers(kind: str) -> None:
    model = tiny_vision(kind, ours=False)
    vision = vision_of(model)
    assert vision is not None
    seen: list[Tensor] = []
    rotary = model.base_model.language_model.rotary_emb
    rotary.register_forward_pre_hook(lambda _module, given: seen.append(given[1]))
    response = [1, 2, 3]
    for prompt in mixed_prompts(model.config):
        seen.clear()
        theirs(model, prompt, response)
        positions, behind = vision.positions(prompt)
        whole = torch.cat([torch.from_numpy(positions).expand(3, -1), (behind + torch.arange(3)).expand(3, -1)], dim=1)
        assert torch.equal(seen[0].expand(3, -1, -1)[:, 0], whole), prompt.uid


def test_images_have_fewer_positions_than_tokens() -> None:
    model = tiny_vision("qwen2_5_vl")
    prompt = vision_prompt(model.config, images=[(1, 8, 8)], seed=1)
    positions, behind = vision_of(model).positions(prompt)  # type: ignore[union-attr]
    assert behind == len(prompt.ids) - 16 + 4
    start = prompt.ids.index(IMAGE)
    assert positions[:, start : start + 5].T.tolist() == [[start, start, start + i] for i in range(4)] + [
        [start, start + 1, start]
    ]


def test_placeholders_are_those_of_the_config() -> None:
    assert placeholder_ids(tiny_vision("qwen3_vl").config) == [48, 49, IMAGE, VIDEO]
    assert placeholder_ids(tiny_vision("qwen3_vl").config.text_config) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_frozen_tower_has_no_gradient_and_no_backward(kind: str) -> None:
    model = tiny_vision(kind)
    free = _gradients(model)
    tower = sum(p.numel() for p in model.base_model.visual.parameters())
    assert freeze_tower(model) == tower
    graphs: list[bool] = []
    model.base_model.visual.register_forward_hook(lambda _m, _given, out: graphs.append(out[0].requires_grad))
    frozen = _gradients(model)
    assert graphs == [False]
    assert {name for name in free if name not in frozen} == {name for name in free if "visual" in name}
    for name, gradient in frozen.items():
        torch.testing.assert_close(gradient, free[name])


def test_adapters_leave_out_the_tower_where_they_are_told(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    lora = LoraConfig(rank=2, exclude_modules=".*visual.*")
    model = tiny_vision("qwen2_5_vl")
    model.save_pretrained(tmp_path / "base")
    everywhere = check_adapters(model.config, LoraConfig(rank=2))
    count = check_adapters(model.config, lora)
    assert 0 < count < everywhere
    add_adapters(model, lora, str(tmp_path / "base"), seed=1)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == count
    assert trained
    assert not any("visual" in name for name in trained)
    gradients = _gradients(model)
    assert gradients.keys() == trained
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name in trained:
                p.normal_(0, 0.3)
    weights = dict(folder_weights(model))
    assert weights.keys() == load_file(tmp_path / "base" / "model.safetensors").keys()
    save_adapters(model, tmp_path / "adapters")
    sample = mixed_samples(model.config, n=1)[2]
    tokenizer_of(tmp_path / "adapters")
    export_merged(tmp_path / "adapters", tmp_path / "merged", str(tmp_path / "base"))
    merged = AutoModelForImageTextToText.from_pretrained(tmp_path / "merged", attn_implementation="sdpa").eval()
    log_p = torch.log_softmax(theirs(merged, sample.prompt, sample.ids), dim=-1)
    expected = log_p[torch.arange(len(sample.ids)), torch.tensor(sample.ids)]
    torch.testing.assert_close(score(model, [sample], 1.0, True).log_probs_BT[0], expected, rtol=1e-4, atol=1e-4)


def tokenizer_of(folder: Path) -> None:
    """A tokenizer for the folder, which a checkpoint has."""
    from tiny_models import tiny_tokenizer

    tiny_tokenizer().save_pretrained(folder)


def test_exact_sampling_is_refused(kernels_everywhere: None) -> None:
    with pytest.raises(UserError, match=r"worker\.rollout\.exact=true: the vision encoder"):
        make_exact(tiny_vision("qwen2_5_vl"))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "recompute"), [("qwen2_vl", False), ("qwen2_5_vl", False), ("qwen3_vl", True)])
def test_the_fused_decoder_gives_the_gradients_of_the_modules(
    kind: str, recompute: bool, kernels_everywhere: None
) -> None:
    model = tiny_vision(kind).to(DEVICE)
    expected = _gradients(model)
    assert fuse(model)
    assert decoder_of(model) is not None
    if recompute:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    found = _gradients(model)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        scale = gradient.abs().max() + 1e-4
        torch.testing.assert_close(found[name] / scale, gradient / scale, rtol=1e-3, atol=1e-3, msg=name)


def test_text_prompts_need_no_tower() -> None:
    model = tiny_vision("qwen3_vl")
    calls: list[int] = []
    model.base_model.visual.register_forward_hook(lambda *_: calls.append(1))
    text = [s for s in mixed_samples(model.config) if s.prompt.media is None]
    score(model, text, 1.0, share_prefix=True)
    assert not calls


def _other(kind: str) -> PreTrainedModel:
    """A vision-language model of another family, which runs by its own forward."""
    text = {"vocab_size": 56, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    text |= {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "initializer_range": 0.2}
    vision = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    vision |= {"image_size": 28, "patch_size": 14}
    config: PretrainedConfig
    if kind == "llava":
        towers = {"text_config": LlamaConfig(**text), "vision_config": CLIPVisionConfig(**vision, projection_dim=16)}
        config = LlavaConfig(**towers, image_token_id=IMAGE, vision_feature_layer=-1)
    else:
        config = Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4, image_token_id=IMAGE)
    torch.manual_seed(1)
    made = AutoModelForImageTextToText.from_config(config, attn_implementation=attention.implementation(config))
    return made.eval()


def _four_tokens_an_image(images: int, seed: int) -> Prompt:
    ids = [1, 2, 3]
    for _ in range(images):
        ids += [IMAGE] * 4 + [seed, 5]
    pixels = torch.randn(images, 3, 28, 28, generator=torch.Generator().manual_seed(seed))
    return Prompt(f"row:{seed}", ids, "", media=Media(inputs={"pixel_values": pixels}) if images else None)


@torch.no_grad()
def test_other_families_run_by_their_own_forward() -> None:
    model = _other("llava")
    prompts = [_four_tokens_an_image(images, seed) for seed, images in enumerate((0, 1, 2, 0))]
    samples = [Sample.written(p, [4, seed, 6], [0.0] * 3, "stop") for p in prompts for seed in (8, 9)]
    for share in (True, False):
        found = score(model, samples, 1.0, share).log_probs_BT
        model.set_attn_implementation("sdpa")
        for sample, row in zip(samples, found):
            inputs = sample.prompt.media.inputs if sample.prompt.media else {}
            logits = model(input_ids=torch.tensor([sample.prompt.ids + sample.ids]), **inputs).logits[0]
            log_p = torch.log_softmax(logits[len(sample.prompt.ids) - 1 : -1], dim=-1)
            torch.testing.assert_close(row, log_p[torch.arange(3), torch.tensor(sample.ids)], rtol=1e-4, atol=1e-5)
        model.set_attn_implementation(attention.implementation(model.config))


def test_images_whose_tokens_see_each_other_are_refused() -> None:
    model = _other("gemma3")
    check_prompt(model, _four_tokens_an_image(0, 1))
    with pytest.raises(UserError, match=r"row:2: tokens of one image see each other in Gemma3Model"):
        check_prompt(model, _four_tokens_an_image(1, 2))
