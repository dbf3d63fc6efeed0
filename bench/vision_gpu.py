"""Training on images with the prompt shared by its samples, and without: Qwen2.5-VL-3B's shape with random weights.

    python bench/vision_gpu.py [--prompts 4] [--samples 8] [--image-tokens 1000] [--response 200]
    python bench/vision_gpu.py --tiny                # a tiny model on a CPU, to try the script

Forward and backward of whet's learner in micro-batches of at most --tokens; the median of three after one that does not
count. The vision tower is trained too, and runs once for each copy of its prompt. Gradients are compared in bf16 on all
samples, and in fp32 on two. A masked forward pass (VPPO's second one) is timed beside them.
"""

from __future__ import annotations

import argparse
import random
import statistics
from typing import Any

import torch
from gpu_part import timed
from torch import Tensor
from transformers import AutoModelForImageTextToText, PretrainedConfig, PreTrainedModel
from transformers.models.qwen2_5_vl import Qwen2_5_VLConfig

from whet.learn.partition import micro_batches
from whet.learn.scoring import score
from whet.model import attention
from whet.model.fused import decoder_of, fuse
from whet.types import Media, Prompt, Sample

IMAGE, START, END = 151655, 151652, 151653  # Qwen's ids


def shape() -> PretrainedConfig:
    """Qwen2.5-VL-3B."""
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]}
    text = {"vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36}
    text |= {"num_attention_heads": 16, "num_key_value_heads": 2, "rope_parameters": rope, "tie_word_embeddings": True}
    vision = {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "out_hidden_size": 2048}
    vision |= {"patch_size": 14, "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31]}
    return _config(text, vision)


def tiny_shape() -> PretrainedConfig:
    """The same family, small enough for a test."""
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}
    text = {"vocab_size": 151936, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    text |= {"num_attention_heads": 2, "num_key_value_heads": 1, "rope_parameters": rope, "tie_word_embeddings": True}
    vision = {"depth": 2, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2, "out_hidden_size": 32}
    return _config(text, vision | {"patch_size": 14, "window_size": 56, "fullatt_block_indexes": [1]})


def _config(text: dict[str, Any], vision: dict[str, Any]) -> PretrainedConfig:
    ids = {"image_token_id": IMAGE, "vision_start_token_id": START, "vision_end_token_id": END}
    return Qwen2_5_VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True, **ids)


def build(config: PretrainedConfig, device: str, dtype: torch.dtype) -> PreTrainedModel:
    """Random weights, made where they are used."""
    torch.manual_seed(0)
    how = attention.implementation(config)
    with torch.device(device):
        model = AutoModelForImageTextToText.from_config(config, attn_implementation=how, dtype=dtype)
    return model.to(device).eval()


def made_up(config: PretrainedConfig, prompts: int, n: int, tokens: int, response: int) -> list[Sample]:
    """n responses of random tokens to each of some prompts of one image."""
    rng, vision, samples = random.Random(0), config.vision_config, []
    height = next(h for h in range(int(tokens**0.5), 0, -1) if tokens % h == 0)
    grid = [1, 2 * height, 2 * (tokens // height)]
    width = 3 * vision.temporal_patch_size * vision.patch_size**2
    for p in range(prompts):
        ids = [rng.randrange(1000) for _ in range(8)] + [START] + [IMAGE] * tokens + [END]
        ids += [rng.randrange(1000) for _ in range(8)]
        pixels = torch.randn(4 * tokens, width, generator=torch.Generator().manual_seed(p))
        media = Media(inputs={"pixel_values": pixels, "image_grid_thw": torch.tensor([grid])})
        prompt = Prompt(f"row:{p}", ids, "", media=media)
        for i in range(n):
            answer = [rng.randrange(1000) for _ in range(response)]
            samples.append(Sample.written(prompt, answer, [0.0] * response, "stop", index=i))
    return samples


def passes(model: PreTrainedModel, samples: list[Sample], share: bool, budget: int, backward: bool = True) -> None:
    """One pass over all samples, micro-batch by micro-batch."""
    signs = torch.tensor([1.0 if i % 2 else -0.7 for i in range(len(samples))], device=model.device)
    for rows in micro_batches(samples, share, budget, max_samples=1):
        with torch.set_grad_enabled(backward):
            scored = score(model, [samples[i] for i in rows], 1.0, share)
            if backward:
                ((signs[rows][:, None] * scored.log_probs_BT).sum() / len(samples)).backward()


def gradient(model: PreTrainedModel, samples: list[Sample], share: bool, budget: int) -> dict[str, Tensor]:
    """Of the vision tower and of the decoder, each as one vector."""
    model.zero_grad()
    passes(model, samples, share, budget)
    found: dict[str, list[Tensor]] = {"tower": [], "decoder": []}
    for name, p in model.named_parameters():
        if p.grad is not None:
            found["tower" if "visual" in name else "decoder"].append(p.grad.float().flatten())
    model.zero_grad()
    return {part: torch.cat(tensors) for part, tensors in found.items()}


def compare(model: PreTrainedModel, samples: list[Sample], budget: int) -> str:
    """How far the shared gradient is from the copied one."""
    copied, shared = (gradient(model, samples, share, budget) for share in (False, True))
    errors = {part: float((shared[part] - copied[part]).norm() / copied[part].norm()) for part in copied}
    return ", ".join(f"{part} {error:.1e}" for part, error in errors.items())


def main() -> None:
    arguments = _arguments()
    device = "cpu" if arguments.tiny else "cuda"
    config = tiny_shape() if arguments.tiny else shape()
    tokens, budget = (16, 200) if arguments.tiny else (arguments.image_tokens, arguments.tokens)
    length = 6 if arguments.tiny else arguments.response
    samples = made_up(config, arguments.prompts, arguments.samples, tokens, length)
    two = made_up(config, 1, 2, tokens, length)

    model = build(config, device, torch.float32)
    print(f"gradients in fp32, shared against copied: {compare(model, two, budget)}", flush=True)
    del model
    model = build(config, device, torch.float32 if arguments.tiny else torch.bfloat16)
    fuse(model)
    print(f"fused decoder: {decoder_of(model) is not None}", flush=True)
    print(f"gradients in {model.dtype}: {compare(model, samples, budget)}", flush=True)
    seconds = {}
    for name, share, backward in (("copied", False, True), ("shared", True, True), ("masked forward", True, False)):

        def run(share: bool = share, backward: bool = backward) -> None:
            passes(model, samples, share, budget, backward)

        timed(device, run)
        seconds[name] = statistics.median(timed(device, run)[0] for _ in range(3))
        peak = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else 0.0
        print(f"{name}: {seconds[name]:.3f} s, at most {peak:.1f} GiB so far", flush=True)
    ratio, share = seconds["copied"] / seconds["shared"], seconds["masked forward"] / seconds["shared"]
    print(f"shared prefixes: {ratio:.2f} times as fast; a masked forward pass: {share:.0%} of forward and backward")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--image-tokens", type=int, default=1000)
    parser.add_argument("--response", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=12000, help="tokens a micro-batch")
    parser.add_argument("--tiny", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
