"""Where the model lives and in which precision."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from whet.config import Config
from whet.errors import UserError

_DTYPES = {"bf16": torch.bfloat16, "bfloat16": torch.bfloat16, "fp32": torch.float32, "float32": torch.float32}


@dataclass(frozen=True, slots=True)
class Placement:
    """A device and the dtype of the weights on it."""

    device: torch.device
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')} on {self.device}"


def choose_placement(config: Config) -> Placement:
    """`trainer.device` and `worker.actor.fsdp.torch_dtype`, or what suits this machine."""
    wanted = config.trainer.device
    if wanted == "cuda" and not torch.cuda.is_available():
        raise UserError("trainer.device=cuda: torch sees no CUDA device here; set trainer.device=cpu or auto")
    device = "cuda" if wanted == "cuda" or (wanted == "auto" and torch.cuda.is_available()) else "cpu"
    actor = config.worker.actor
    default = "bf16" if actor.optim.strategy == "adamw_bf16" else "fp32"
    return Placement(torch.device(device), _DTYPES[actor.fsdp.torch_dtype or default])
