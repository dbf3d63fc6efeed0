"""Shards of one rank and ways to damage them, for tests of what a merge refuses."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import torch
from merge.conftest import describe
from safetensors.torch import load_file

SHARD = "model_world_size_1_rank_0.pt"


def one_rank(model: Path, folder: Path) -> Path:
    """`actor/` of one rank that saved whole tensors of `model`."""
    folder.mkdir(parents=True)
    torch.save(load_file(model / "model.safetensors"), folder / SHARD)
    describe(model, folder)
    return folder


def repacked(
    file: Path, change: Callable[[str, bytes], bytes] = lambda _, data: data, compression: int = zipfile.ZIP_STORED
) -> None:
    """Write an archive again with entries changed."""
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, change(name, data))


def touching_code(folder: Path, module: str = "evil") -> Path:
    """A Python file in `folder` that leaves a mark when it is run."""
    mark = folder / "it_ran"
    (folder / f"{module}.py").write_text(f"open({str(mark)!r}, 'w').close()\n\n\nclass Evil:\n    pass\n")
    return mark


def copied(source: Path, target: Path) -> Path:
    """A copy of a folder that may be changed."""
    shutil.copytree(source, target)
    return target
