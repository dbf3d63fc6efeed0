"""Device and precision of the model."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from dataclasses import dataclass, replace

import torch

from whet.config import Config
from whet.errors import UserError

_DTYPES = {"bf16": torch.bfloat16, "bfloat16": torch.bfloat16, "fp32": torch.float32, "float32": torch.float32}
_BF16_PRODUCT = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); x @ x"
_WITHOUT_AMX = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}


_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_TINY = 5_000_000  # parameters below which a second thread costs more in waiting than it saves in work


@dataclass(frozen=True, slots=True)
class Placement:
    """A device and the dtype of the weights on it."""

    device: torch.device
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')} on {self.device}"


def keep_freed_memory(placement: Placement) -> None:
    """Have a CPU's allocator keep freed memory for the next tensor instead of returning it to the system.

    glibc maps every large tensor anew, and the system clears its pages each time: a fifth of an update's time. Both
    switches are glibc's own (mallopt(3)); other C libraries have none.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if placement.device.type == "cpu" and mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, -1)


def choose_threads(placement: Placement, parameters: int | None) -> None:
    """One thread for a tiny model on a CPU; OMP_NUM_THREADS, when set, has the last word."""
    tiny = parameters is not None and parameters < _TINY
    if placement.device.type == "cpu" and tiny and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)


def choose_placement(config: Config, part: str = "actor") -> Placement:
    """`trainer.device` and the `fsdp.torch_dtype` of the actor or the critic, or what suits this machine."""
    wanted = config.trainer.device
    if wanted == "cuda" and not torch.cuda.is_available():
        raise UserError("trainer.device=cuda: torch sees no CUDA device here; set trainer.device=cpu or auto")
    device = "cuda" if wanted == "cuda" or (wanted == "auto" and torch.cuda.is_available()) else "cpu"
    dtype = dtype_on(device, config, part)
    if device == "cpu" and dtype is torch.bfloat16:
        _make_bf16_safe(part)
    return Placement(torch.device(device), dtype)


def dtype_on(device: str, config: Config, part: str = "actor") -> torch.dtype:
    """Return the dtype of a part's weights on a "cuda" or a "cpu" device."""
    worker = getattr(config.worker, part)
    default = "bf16" if device == "cuda" or worker.optim.strategy == "adamw_bf16" else "fp32"
    if worker.optim.strategy == "muon":  # which has no sums of its own for bf16
        default = "fp32"
    return _DTYPES[worker.fsdp.torch_dtype or default]


def reference_placement(config: Config, policy: Placement) -> Placement:
    """Return the reference's device and precision: the policy's, unless `worker.ref.fsdp.torch_dtype` is given."""
    named = config.worker.ref.fsdp.torch_dtype
    return replace(policy, dtype=_DTYPES[named]) if named else policy


def _make_bf16_safe(part: str) -> None:
    """Keep bf16 products from ending the process: some virtual machines promise AMX and do not have it."""
    if _survives({}):
        return
    if not _survives(_WITHOUT_AMX):
        raise UserError(
            f"worker.{part}.fsdp.torch_dtype=bf16 crashes torch on this CPU: set it to fp32 (and "
            f"worker.{part}.optim.strategy=adamw), or train on a GPU"
        )
    os.environ.update(_WITHOUT_AMX)  # oneDNN looks at its first product, which is still to come


def _survives(environment: dict[str, str]) -> bool:
    """Return True if a process can multiply bf16 matrices here without crashing."""
    probe = [sys.executable, "-c", _BF16_PRODUCT]
    return subprocess.run(probe, env=os.environ | environment, capture_output=True).returncode == 0


def is_distributed(config: Config) -> bool:
    """Return True if a run asks for more than one device."""
    return config.trainer.n_gpus_per_node * config.trainer.nnodes > 1


def check_distributed(config: Config) -> None:
    """Refuse what runs on one device only, before anything starts."""
    if config.worker.rollout.exact:
        asked = f"trainer.n_gpus_per_node={config.trainer.n_gpus_per_node}, trainer.nnodes={config.trainer.nnodes}"
        raise UserError(f"{asked}: worker.rollout.exact=true is for one device; set it to false")
