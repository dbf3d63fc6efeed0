"""Arguments of `whet merge`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from whet.errors import UserError

if TYPE_CHECKING:
    import torch

_DTYPES = ("bfloat16", "float16", "float32")


@dataclass(frozen=True, slots=True)
class Options:
    """Arguments by the names that verl's and EasyR1's mergers have for them."""

    local_dir: Path
    target_dir: Path | None = None
    base: str | None = None  # of adapters: where their first weights are by now
    hf_model_path: str | None = None
    hf_upload_path: str | None = None
    private: bool = False
    keep_lora: bool = False
    dtype: torch.dtype | None = None
    trust_pickles: bool = False
    trust_remote_code: bool = False


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"merge: {message} (whet merge --help)")


def parse(arguments: Sequence[str]) -> Options:
    """Options of a command line; a `UserError` where they make no sense."""
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("places", nargs="*")
    for name in ("local_dir", "target_dir", "hf_model_path", "hf_upload_path"):
        parser.add_argument(f"--{name}", f"--{name.replace('_', '-')}", metavar="")
    for name in ("keep_lora", "private", "trust_pickles", "trust_remote_code"):
        parser.add_argument(f"--{name.replace('_', '-')}", f"--{name}", action="store_true")
    parser.add_argument("--dtype", choices=_DTYPES)
    parser.add_argument("--backend", default="fsdp")
    given = parser.parse_args(list(arguments))
    if given.places[:1] == ["merge"] and given.local_dir:  # as in `python -m verl.model_merger merge --backend fsdp`
        del given.places[0]
    if given.backend != "fsdp":
        raise UserError(f"--backend={given.backend}: only fsdp can be merged; for Megatron's shards use verl's merger")
    if given.local_dir is None and len(given.places) not in (2, 3):
        raise UserError(
            "whet merge takes a checkpoint and a folder (whet merge checkpoints/.../global_step_N DIR), or --local_dir "
            "with shards of verl or EasyR1"
        )
    if given.local_dir is not None and given.places:
        raise UserError(f"merge: {given.places[0]} stands beside --local_dir; name the output by --target_dir")
    places = [given.local_dir, given.target_dir, None] if given.local_dir else [*given.places, None]
    local, target = (None if place is None else Path(place).expanduser() for place in places[:2])
    assert local is not None
    return Options(
        local_dir=local,
        target_dir=target,
        base=places[2],
        hf_model_path=given.hf_model_path,
        hf_upload_path=given.hf_upload_path,
        private=given.private,
        keep_lora=given.keep_lora,
        dtype=_dtype(given.dtype),
        trust_pickles=given.trust_pickles,
        trust_remote_code=given.trust_remote_code,
    )


def _dtype(name: str | None) -> torch.dtype | None:
    if name is None:
        return None
    import torch

    return {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}[name]
