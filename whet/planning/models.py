"""Shapes of common public models, so that they can be planned without a download, and configs of local folders.

The numbers are those of the models' public config.json files. A name is found with or without its organisation and
endings such as -Instruct.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.config.problems import hint
from whet.config.texts import printable
from whet.errors import UserError

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_ENDINGS = re.compile(r"-(instruct|base|chat|thinking|it|hf|\d{4}|awq|fp8)$")
_INFIXES = re.compile(r"-(math|coder|meta)(?=-)")
_SAME = {"whet/smollm2": "SmolLM2-135M"}  # the built-in, which need not be made to be planned


def _text(kind: str, sizes: tuple[int, ...], vocab: int, tied: bool, **more: Any) -> dict[str, Any]:
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    given = dict(zip(names, sizes, strict=True))
    return {"model_type": kind, **given, "vocab_size": vocab, "tie_word_embeddings": tied, **more}


def _qwen2(*sizes: int, vocab: int = 151936, tied: bool = False, positions: int = 32768) -> dict[str, Any]:
    return _text("qwen2", sizes, vocab, tied, max_position_embeddings=positions)


def _qwen3(*sizes: int, tied: bool = False, **more: Any) -> dict[str, Any]:
    return _text("qwen3", sizes, 151936, tied, head_dim=128, max_position_embeddings=40960, **more)


def _llama(
    *sizes: int, vocab: int = 128256, tied: bool = False, positions: int = 131072, **more: Any
) -> dict[str, Any]:
    return _text("llama", sizes, vocab, tied, max_position_embeddings=positions, **more)


def _sees(kind: str, text: dict[str, Any], vision: dict[str, Any]) -> dict[str, Any]:
    tied = text["tie_word_embeddings"]
    inner = {**text, "model_type": f"{kind}_text"}
    return {"model_type": kind, "text_config": inner, "vision_config": vision, "tie_word_embeddings": tied}


def _qwen2_5_vl(*sizes: int, inner: int = 3456, vocab: int = 152064, tied: bool = False) -> dict[str, Any]:
    text = _text("qwen2", sizes, vocab, tied, max_position_embeddings=128000)
    vision = {
        "depth": 32,
        "hidden_size": 1280,
        "num_heads": 16,
        "intermediate_size": inner,
        "out_hidden_size": sizes[0],
    }
    return _sees("qwen2_5_vl", text, vision)


def _qwen3_vl(*sizes: int, small: bool = False, tied: bool = False, **more: Any) -> dict[str, Any]:
    text = _text("qwen3", sizes, 151936, tied, head_dim=128, max_position_embeddings=262144, **more)
    vision = {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "deepstack_visual_indexes": [8, 16, 24]}
    if small:
        vision = {"depth": 24, "hidden_size": 1024, "intermediate_size": 4096, "deepstack_visual_indexes": [5, 11, 17]}
    kind = "qwen3_vl_moe" if more else "qwen3_vl"
    return _sees(kind, text, {**vision, "num_heads": 16, "out_hidden_size": sizes[0]})


_A3B: dict[str, Any] = {
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "decoder_sparse_step": 1,
}

# hidden, intermediate, layers, heads, key-value heads
MODELS: dict[str, dict[str, Any]] = {
    "SmolLM2-135M": _llama(576, 1536, 30, 9, 3, vocab=49152, tied=True, positions=8192),
    "SmolLM2-360M": _llama(960, 2560, 32, 15, 5, vocab=49152, tied=True, positions=8192),
    "SmolLM2-1.7B": _llama(2048, 8192, 24, 32, 32, vocab=49152, tied=True, positions=8192),
    "Qwen2.5-0.5B": _qwen2(896, 4864, 24, 14, 2, tied=True),
    "Qwen2.5-1.5B": _qwen2(1536, 8960, 28, 12, 2, tied=True),
    "Qwen2.5-3B": _qwen2(2048, 11008, 36, 16, 2, tied=True),
    "Qwen2.5-7B": _qwen2(3584, 18944, 28, 28, 4, vocab=152064),
    "Qwen2.5-14B": _qwen2(5120, 13824, 48, 40, 8, vocab=152064),
    "Qwen2.5-32B": _qwen2(5120, 27648, 64, 40, 8, vocab=152064),
    "Qwen2.5-72B": _qwen2(8192, 29568, 80, 64, 8, vocab=152064),
    "Qwen3-0.6B": _qwen3(1024, 3072, 28, 16, 8, tied=True),
    "Qwen3-1.7B": _qwen3(2048, 6144, 28, 16, 8, tied=True),
    "Qwen3-4B": _qwen3(2560, 9728, 36, 32, 8, tied=True),
    "Qwen3-8B": _qwen3(4096, 12288, 36, 32, 8),
    "Qwen3-14B": _qwen3(5120, 17408, 40, 40, 8),
    "Qwen3-32B": _qwen3(5120, 25600, 64, 64, 8),
    "Qwen3-30B-A3B": {**_qwen3(2048, 6144, 48, 32, 4, **_A3B), "model_type": "qwen3_moe"},
    "Qwen2.5-VL-3B": _qwen2_5_vl(2048, 11008, 36, 16, 2, inner=3420, vocab=151936, tied=True),
    "Qwen2.5-VL-7B": _qwen2_5_vl(3584, 18944, 28, 28, 4, inner=3420),
    "Qwen2.5-VL-32B": _qwen2_5_vl(5120, 27648, 64, 40, 8),
    "Qwen2.5-VL-72B": _qwen2_5_vl(8192, 29568, 80, 64, 8),
    "Qwen3-VL-2B": _qwen3_vl(2048, 6144, 28, 16, 8, small=True, tied=True),
    "Qwen3-VL-4B": _qwen3_vl(2560, 9728, 36, 32, 8, small=True, tied=True),
    "Qwen3-VL-8B": _qwen3_vl(4096, 12288, 36, 32, 8),
    "Qwen3-VL-32B": _qwen3_vl(5120, 25600, 64, 64, 8),
    "Qwen3-VL-30B-A3B": _qwen3_vl(2048, 6144, 48, 32, 4, **_A3B),
    "Llama-3.2-1B": _llama(2048, 8192, 16, 32, 8, tied=True),
    "Llama-3.2-3B": _llama(3072, 8192, 28, 24, 8, tied=True),
    "Llama-3.1-8B": _llama(4096, 14336, 32, 32, 8),
    "Llama-3.1-70B": _llama(8192, 28672, 80, 64, 8),
    "Llama-3-8B": _llama(4096, 14336, 32, 32, 8, positions=8192),
    "Llama-3-70B": _llama(8192, 28672, 80, 64, 8, positions=8192),
    "Llama-3.3-70B": _llama(8192, 28672, 80, 64, 8),
    "DeepSeek-R1-Distill-Qwen-1.5B": _qwen2(1536, 8960, 28, 12, 2, positions=131072),
    "DeepSeek-R1-Distill-Qwen-7B": _qwen2(3584, 18944, 28, 28, 4, vocab=152064, positions=131072),
    "DeepSeek-R1-Distill-Qwen-14B": _qwen2(5120, 13824, 48, 40, 8, vocab=152064, positions=131072),
    "DeepSeek-R1-Distill-Qwen-32B": _qwen2(5120, 27648, 64, 40, 8, vocab=152064, positions=131072),
    "DeepSeek-R1-Distill-Llama-8B": _llama(4096, 14336, 32, 32, 8),
    "DeepSeek-R1-Distill-Llama-70B": _llama(8192, 28672, 80, 64, 8),
}


def find_name(name: str) -> str | None:
    """Return the entry of the table that a name means, or None."""
    if name in _SAME:
        return _SAME[name]
    bare = name.rpartition("/")[2].lower()
    known = {each.lower(): each for each in MODELS}
    while True:
        for form in (bare, _INFIXES.sub("", bare), bare.removeprefix("meta-")):
            if form in known:
                return known[form]
        shorter = _ENDINGS.sub("", bare)
        if shorter == bare:
            return None
        bare = shorter


def config_of(name: str) -> PretrainedConfig:
    """Return the config of an entry of the table."""
    from transformers import AutoConfig

    settings = dict(MODELS[name])
    return AutoConfig.for_model(settings.pop("model_type"), **settings)


def find_config(name: str, key: str = "worker.actor.model.model_path") -> tuple[str, PretrainedConfig]:
    """Return a short name and the config of a model: a folder with a config.json, a built-in, or an entry of the table.

    Weights are not looked at, and nothing is downloaded.
    """
    path = Path(os.path.expanduser(name))
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise UserError(f"{key}={printable(name)}: there is no config.json in this folder; name a model folder")
        return path.absolute().name, _read(str(path), key)
    if found := find_name(name):
        return found, config_of(found)
    from whet.assets.store import PREFIX

    if name.startswith(PREFIX):
        from whet.assets import resolve_model

        return name, _read(str(resolve_model(name, lambda _: None)), key)
    listed = ", ".join(MODELS)
    near = hint(name.rpartition("/")[2], MODELS)
    raise UserError(
        f"{key}={printable(name)}: there is no such folder here, and it is none of the models that whet knows{near}; "
        f"name a folder with a config.json, or one of {listed}"
    )


def _read(folder: str, key: str) -> PretrainedConfig:
    from whet.model.load import load_model_config

    return load_model_config(folder, section=key.removesuffix(".model_path"))
