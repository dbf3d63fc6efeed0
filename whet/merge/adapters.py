"""Checkpoints of LoRA runs of verl and EasyR1: pieces of the base and of the adapters, by the names PEFT gives them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from whet.errors import UserError
from whet.merge.layout import Weights
from whet.merge.safetensors_file import Entry
from whet.model.export import read_scale
from whet.model.trust import ADAPTER_CONFIG as CONFIG
from whet.model.trust import check_link

FOLDER = "lora_adapter"  # beside the files of the ranks
_WRAPPED = "base_model.model."
_MATRIX = re.compile(r"(.+)\.lora_([AB])\.\w+\.weight")


def has_adapters(names: list[str]) -> bool:
    """Return True if the checkpoint is of a LoRA run."""
    return any(".lora_" in name for name in names)


def read_adapter_config(folder: Path) -> Path:
    """Return the file of PEFT's config of the adapters; a `UserError` unless it says how much they count for."""
    file = folder / FOLDER / CONFIG
    for path in (folder / FOLDER, file):
        check_link(path, folder)
    try:
        read_scale(file)
    except UserError as error:
        raise UserError(
            f"{folder} is of a LoRA run, and {file} should say its lora_alpha: {error}. Write that file, with r and "
            "lora_alpha of the run's config"
        ) from None
    return file


@dataclass(frozen=True, slots=True)
class Merged:
    """The weights of a plain model: those under the adapters, and what the adapters add to them."""

    weights: Weights
    scale: float
    plain: dict[str, str]  # names of the plain model, and what the checkpoint calls them
    adapters: dict[str, tuple[str, str]]  # the checkpoint's names of A and B, by the plain name of what they adapt

    @classmethod
    def of(cls, weights: Weights, file: Path) -> Merged:
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
        rank, alpha, rooted = read_scale(file)
        for name, pair in pairs.items():
            a_RI, b_OR = (weights.shape(pair[kind], ()) for kind in "AB")
            if len(a_RI) != 2 or len(b_OR) != 2 or a_RI[0] != rank or b_OR[1] != rank:
                raise UserError(f"{file}: r={rank}, but the adapter of {name} has the shapes {a_RI} and {b_OR}")
        scale = alpha / (math.sqrt(rank) if rooted else rank)
        return cls(weights, scale, plain, {n: (p["A"], p["B"]) for n, p in pairs.items()})

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
        if added.shape != weight.shape:
            raise UserError(f"the adapter of {name} makes {tuple(added.shape)}, and its layer is {tuple(weight.shape)}")
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
