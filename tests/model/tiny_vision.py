"""Small random vision-language models of the real classes, prompts for them, and what transformers makes of both."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForImageTextToText, PretrainedConfig, PreTrainedModel

from whet.model import attention
from whet.types import Media, Prompt, Sample

KINDS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
WORDS = 48  # ids below are text
START, END, IMAGE, VIDEO, EOS = 48, 49, 50, 51, 52
VOCABULARY = 56
_TOKENS = {
    "image_token_id": IMAGE,
    "video_token_id": VIDEO,
    "vision_start_token_id": START,
    "vision_end_token_id": END,
}


def vision_config(kind: str, head_dim: int = 16, hidden: int = 32, layers: int = 3) -> PretrainedConfig:
    """A few layers, M-RoPE sections as the real ones are cut."""
    sections = {8: [2, 1, 1], 16: [4, 2, 2], 32: [8, 4, 4]}[head_dim]
    text: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // head_dim,
        "num_key_value_heads": max(1, hidden // head_dim // 2),
        "max_position_embeddings": 512,
        "initializer_range": 0.2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": sections},
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": EOS,
        "pad_token_id": None,
    }
    vision: dict[str, Any] = {"depth": 2, "num_heads": 2, "temporal_patch_size": 2, "spatial_merge_size": 2}
    vision["initializer_range"] = 0.2
    if kind == "qwen2_vl":
        vision |= {"embed_dim": 16, "hidden_size": hidden, "mlp_ratio": 2, "patch_size": 14}
    elif kind == "qwen2_5_vl":
        vision |= {"hidden_size": 16, "intermediate_size": 24, "out_hidden_size": hidden, "patch_size": 14}
        vision |= {"window_size": 56, "fullatt_block_indexes": [1], "tokens_per_second": 2}
    else:
        text |= {"head_dim": head_dim}
        text["rope_parameters"]["mrope_interleaved"] = True
        vision |= {"hidden_size": 16, "intermediate_size": 24, "out_hidden_size": hidden, "patch_size": 16}
        vision |= {"num_position_embeddings": 16, "deepstack_visual_indexes": [0, 1]}
    return AutoConfig.for_model(kind, text_config=text, vision_config=vision, tie_word_embeddings=False, **_TOKENS)


def tiny_vision(kind: str, ours: bool = True, head_dim: int = 16, hidden: int = 32) -> PreTrainedModel:
    """The same random model every time, with whet's attention or transformers' own."""
    config = vision_config(kind, head_dim, hidden)
    implementation = attention.implementation(config) if ours else "sdpa"
    torch.manual_seed(5)
    model = AutoModelForImageTextToText.from_config(config, attn_implementation=implementation, dtype=torch.float32)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "visual" in name and p.ndim > 1:
                p.normal_(0.0, 0.3)  # an image must show in the numbers
    return model.eval()


def _patches(config: PretrainedConfig, grid: tuple[int, int, int], seed: int) -> Tensor:
    vision = config.vision_config
    width = 3 * vision.temporal_patch_size * vision.patch_size**2
    t, h, w = grid
    return torch.randn(t * h * w, width, generator=torch.Generator().manual_seed(seed))


def vision_prompt(
    config: PretrainedConfig,
    images: list[tuple[int, int, int]] = [],  # noqa: B006 - never written to
    videos: list[tuple[int, int, int]] = [],  # noqa: B006
    seed: int = 0,
) -> Prompt:
    """Text, then each image and video with text behind it, as the processor of the model would lay them out."""
    rng = random.Random(seed)

    def text() -> list[int]:
        return [rng.randrange(WORDS) for _ in range(rng.randint(2, 5))]

    ids = text()
    for grid in images:
        ids += [START] + [IMAGE] * (grid[0] * grid[1] * grid[2] // 4) + [END] + text()
    for t, h, w in videos:
        if config.model_type == "qwen3_vl":  # a time stamp before each frame
            for _ in range(t):
                ids += [rng.randrange(WORDS), START] + [VIDEO] * (h * w // 4) + [END]
        else:
            ids += [START] + [VIDEO] * (t * h * w // 4) + [END]
        ids += text()
    inputs: dict[str, Any] = {}
    if images:
        inputs["pixel_values"] = torch.cat([_patches(config, g, seed + i) for i, g in enumerate(images)])
        inputs["image_grid_thw"] = torch.tensor(images)
    if videos:
        inputs["pixel_values_videos"] = torch.cat([_patches(config, g, seed + 50 + i) for i, g in enumerate(videos)])
        inputs["video_grid_thw"] = torch.tensor(videos)
        if config.model_type == "qwen2_5_vl":
            inputs["second_per_grid_ts"] = torch.tensor([1.5] * len(videos))
    return Prompt(f"row:{seed}", ids, "", media=Media(inputs=inputs) if inputs else None)


def mixed_prompts(config: PretrainedConfig) -> list[Prompt]:
    """Text, one image, two images, a video, an image and a video."""
    return [
        vision_prompt(config, seed=1),
        vision_prompt(config, images=[(1, 4, 6)], seed=2),
        vision_prompt(config, images=[(1, 4, 4), (1, 2, 8)], seed=3),
        vision_prompt(config, videos=[(3, 4, 4)], seed=4),
        vision_prompt(config, images=[(1, 2, 4)], videos=[(2, 2, 4)], seed=5),
        vision_prompt(config, seed=6),
    ]


def mixed_samples(config: PretrainedConfig, n: int = 2) -> list[Sample]:
    """n ragged responses to each."""
    rng = random.Random(7)
    samples = []
    for group, prompt in enumerate(mixed_prompts(config)):
        for i in range(n):
            ids = [rng.randrange(WORDS) for _ in range(rng.randint(1, 7))]
            score = {"overall": rng.random()}
            samples.append(Sample.written(prompt, ids, [-1.0] * len(ids), "stop", index=i, group=group, scores=score))
    return samples


def theirs(model: PreTrainedModel, prompt: Prompt, response: list[int]) -> Tensor:
    """Logits (R, V) of a response by transformers alone, which finds positions itself."""
    ids = torch.tensor([prompt.ids + response])
    kinds = (ids == IMAGE).int() + 2 * (ids == VIDEO).int()
    inputs = {} if prompt.media is None else prompt.media.inputs
    model.base_model.rope_deltas = None
    logits = model(input_ids=ids, attention_mask=torch.ones_like(ids), mm_token_type_ids=kinds, **inputs).logits
    P = len(prompt.ids)
    return logits[0, P - 1 : P - 1 + len(response)]


def their_log_probs(model: PreTrainedModel, sample: Sample, temperature: float = 1.0) -> Tensor:
    """Log-probs (R,) of a sample's tokens by transformers alone."""
    log_p = torch.log_softmax(theirs(model, sample.prompt, sample.ids) / temperature, dim=-1)
    return log_p[torch.arange(len(sample.ids)), torch.tensor(sample.ids)]
