"""Shards of verl, EasyR1 and Skywork-OR1 (`model_world_size_W_rank_R.pt`) as a Hugging Face folder."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from whet.merge.adapters import CONFIG, Merged, has_adapters, read_adapter_config
from whet.merge.folder import check_room, check_target, gather, write_descriptions, writing
from whet.merge.layout import Layout, Weights, empty_model
from whet.merge.options import Options
from whet.merge.safetensors_file import Entry, write_model, write_tensors
from whet.merge.shards import Shards, rank_files
from whet.model.export import base_of

_DERIVED = "rotary_emb.inv_freq"  # older models saved it; it follows from the config


def merge_shards(options: Options, local_dir: Path, say: Callable[[str], None]) -> Path:
    """Write the model in `local_dir` and return the folder it is in."""
    beside = local_dir / "huggingface"
    target = options.target_dir or beside
    check_target(target, beside)
    files = rank_files(local_dir)
    described = gather(local_dir, options.hf_model_path)
    shards = Shards.open(files, options.trust_pickles)
    say(f"{local_dir}: {len(files)} ranks, {len(shards.names)} tensors")
    weights: Weights = shards
    if has_adapters(shards.names):
        config = read_adapter_config(local_dir)
        merged = Merged.of(shards, config)
        if options.keep_lora:
            return _write_adapters(target, merged, config, described, say)
        say(f"adapters are merged into {len(merged.adapters)} layers")
        weights = merged
    model = empty_model(described["config.json"].parent, weights.names, options.trust_remote_code)
    entries = list(Layout(model).entries(_Without(weights), files[0]))
    entries = [_cast(entry, options.dtype) for entry in entries]
    check_room(target, entries)
    dtype = Counter({entry.dtype: 0 for entry in entries})
    for entry in entries:
        dtype[entry.dtype] += entry.size
    with writing(target) as side:
        for note in write_descriptions(side, described, model, dtype.most_common(1)[0][0], options.trust_remote_code):
            say(note)
        write_model(side, entries)
    say(f"the merged model is in {target}")
    return target


class _Without:
    """The same weights without what follows from the config anyway."""

    def __init__(self, weights: Weights) -> None:
        self.names = [name for name in weights.names if not name.endswith(_DERIVED)]
        self.dtype, self.shape, self.tensor = weights.dtype, weights.shape, weights.tensor


def _cast(entry: Entry, dtype: torch.dtype | None) -> Entry:
    if dtype is None or not entry.dtype.is_floating_point:
        return entry
    return replace(entry, dtype=dtype, make=partial(_made_in, entry.make, dtype))


def _made_in(make: Callable[[], Tensor], dtype: torch.dtype) -> Tensor:
    return make().to(dtype)


def _write_adapters(
    target: Path, merged: Merged, config: Path, described: dict[str, Path], say: Callable[[str], None]
) -> Path:
    """The adapters alone in PEFT's format, with the tokenizer."""
    with writing(target) as side:
        for name, path in described.items():
            if name not in ("config.json", "generation_config.json"):
                shutil.copyfile(path, side / name)
        shutil.copyfile(config, side / CONFIG)
        write_tensors(side / "adapter_model.safetensors", merged.adapter_entries())
    base = base_of(target)
    say(f"the adapters are in {target}; they belong on {ascii(base) if base else 'the model that the run began with'}")
    return target
