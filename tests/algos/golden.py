"""Numbers that other trainers gave for the same inputs: files beside the repository, and `peers.json` in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

_FOLDER = Path(__file__).parents[3] / "shared" / "reference" / "golden"


def read(name: str) -> dict[str, Any]:
    """One golden file; skips the test where it is not there."""
    file = _FOLDER / name
    if not file.is_file():
        pytest.skip(f"the golden numbers {name} are not beside this checkout")
    return json.loads(file.read_text())


def tensor(rows: list) -> Tensor:
    """A (B, T) of a golden file in the precision it was computed in."""
    return torch.tensor(rows, dtype=torch.float32)


def groups(names: list[str]) -> Tensor:
    """Group numbers for group names."""
    return torch.tensor([sorted(set(names)).index(name) for name in names])


def peers() -> dict[str, Any]:
    """Numbers that other implementations gave for the same inputs; `about` says which, and how."""
    return json.loads(Path(__file__).with_name("peers.json").read_text(encoding="utf-8"))
