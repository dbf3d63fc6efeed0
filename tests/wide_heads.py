"""A model with heads of twice the size that computes the same: vLLM's CPU build knows none smaller than 32."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer


@torch.no_grad()
def widen_heads(source: Path, target: Path) -> Path:
    """Write a Llama folder to another with zeros between the elements of its heads.

    Position i of a head rotates with frequency theta^(-2i/d), which position 2i has in heads of 2d elements. Scores
    are divided by sqrt(2d) then, so that queries are larger by sqrt(2).
    """
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    config, weights = model.config, model.state_dict()
    size = config.head_dim

    def spread(rows: Tensor) -> Tensor:
        """(heads · d, ...) to (heads · 2d, ...)."""
        heads = rows.view(-1, size, *rows.shape[1:])
        wide = heads.new_zeros(len(heads), 2 * size, *rows.shape[1:])
        wide[:, ::2] = heads
        return wide.flatten(0, 1)

    for name in list(weights):
        if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
            weights[name] = spread(weights[name]) * (math.sqrt(2) if "q_proj" in name else 1)
        elif name.endswith("o_proj.weight"):
            weights[name] = spread(weights[name].T).T.contiguous()
    config.head_dim = 2 * size
    wide = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    wide.load_state_dict(weights)
    wide.generation_config = model.generation_config
    wide.save_pretrained(target)
    AutoTokenizer.from_pretrained(source).save_pretrained(target)
    return target
