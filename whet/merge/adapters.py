"""Checkpoints of LoRA runs of verl and EasyR1: pieces of the base and of the adapters, by the names PEFT gives them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whet.errors import UserError
from whet.merge.layout import Weights
from whet.merge.safetensors_file import Entry

FOLDER = "lora_adapter"  # beside the files of the ranks
CONFIG = "adapter_config.json"
_WRAPPED = "base_model.model."
_MATRIX = re.compile(r"(.+)\.lora_([AB])\.\w+\.weight")
# Kinds of adapters whose sum is not W + scale · B A.
_OTHER_KINDS = ("use_dora", "alora_invocation_tokens", "layer_replication", "rank_pattern", "alpha_pattern")


def has_adapters(names: list[str]) -> bool:
    """Whether a checkpoint is of a LoRA run."""
    return any(".lora_" in name for name in names)


def read_adapter_config(folder: Path) -> dict[str, Any]:
    """PEFT's config of the adapters, which says how much they count for."""
    file = folder / FOLDER / CONFIG
    try:
        config = json.loads(file.read_text())
        if config["r"] < 1 or config["lora_alpha"] <= 0:
            raise ValueError(f"r={config['r']}, lora_alpha={config['lora_alpha']}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{folder} is of a LoRA run, and {file} should say its lora_alpha: {error}. Write that file, with r and "
            "lora_alpha of the run's config"
        ) from None
    for key in _OTHER_KINDS:
        if config.get(key):
            raise UserError(f"{file}: {key}={config[key]} cannot be merged; PEFT's own merge_and_unload can")
    return config


@dataclass(frozen=True, slots=True)
class Merged:
    """The weights of a plain model: those under the adapters, and what the adapters add to them."""

    weights: Weights
    scale: float
    plain: dict[str, str]  # names of the plain model, and what the checkpoint calls them
    adapters: dict[str, tuple[str, str]]  # the checkpoint's names of A and B, by the plain name of what they adapt

    @classmethod
    def of(cls, weights: Weights, config: dict[str, Any]) -> Merged:
        """Both parts of a checkpoint, sorted out by their names."""
        matrices = {name: match for name in weights.names if (match := _MATRIX.fullmatch(name))}
        plain = {_plain(name): name for name in weights.names if name not in matrices}
        for name in plain.values():
            if ".lora_" in name or ".modules_to_save." in name:
                raise UserError(f"{name}: only adapters of linear layers can be merged")
        pairs: dict[str, dict[str, str]] = {}
        for name, match in matrices.items():
            pairs.setdefault(f"{_plain(match[1])}.weight", {})[match[2]] = name
        for name, pair in pairs.items():
            if pair.keys() != {"A", "B"} or name not in plain:
                raise UserError(f"{name} has only a part of its adapter in the checkpoint")
        rank = math.sqrt(config["r"]) if config.get("use_rslora") else config["r"]
        return cls(weights, config["lora_alpha"] / rank, plain, {n: (p["A"], p["B"]) for n, p in pairs.items()})

    @property
    def names(self) -> list[str]:
        """Names of the plain model."""
        return list(self.plain)

    def dtype(self, name: str) -> torch.dtype:
        """The dtype of what is adapted."""
        return self.weights.dtype(self.plain[name])

    def shape(self, name: str, expected: Sequence[int]) -> tuple[int, ...]:
        """The shape of what is adapted."""
        return self.weights.shape(self.plain[name], expected)

    def tensor(self, name: str, expected: Sequence[int]) -> Tensor:
        """W + scale · B A, rounded as PEFT rounds it: the product to the dtype of the adapters, then the sum."""
        weight = self.weights.tensor(self.plain[name], expected)
        if name not in self.adapters:
            return weight
        a_RI, b_OR = (self.weights.tensor(each, ()) for each in self.adapters[name])
        added = (b_OR.float() @ a_RI.float()) * self.scale
        return weight + added.to(b_OR.dtype).to(weight.dtype)

    def adapter_entries(self) -> list[Entry]:
        """The adapters alone, as PEFT writes them."""
        return [
            Entry(
                re.sub(r"\.lora_([AB])\.\w+\.weight", r".lora_\1.weight", name),
                self.weights.shape(name, ()),
                self.weights.dtype(name),
                partial(self.weights.tensor, name, ()),
            )
            for pair in self.adapters.values()
            for name in pair
        ]


def _plain(name: str) -> str:
    return name.removeprefix(_WRAPPED).replace(".base_layer.", ".").removesuffix(".base_layer")
