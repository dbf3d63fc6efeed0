"""Several CPU ranks for a test: each a process of its own, joined by gloo."""

from __future__ import annotations

import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from fork_server import forked


def run_ranks(world: int, program: Callable[..., Any], folder: Path, *given: Any, seconds: float = 300) -> list[Any]:
    """What `program(*given)` returns on each rank; it must be a function that a module has by name."""
    folder.mkdir(parents=True, exist_ok=True)
    # Ranks meet over a file: a port that was free a moment ago may be another's by now, and whoever serves a store over
    # TCP may be gone while the others still read from it.
    with tempfile.TemporaryDirectory(dir=folder) as meeting:
        _run(world, program, folder, Path(meeting) / "store", given, seconds)
    return [torch.load(folder / f"result_{rank}.pt", weights_only=False) for rank in range(world)]


def _run(
    world: int, program: Callable[..., Any], folder: Path, store: Path, given: tuple[Any, ...], seconds: float
) -> None:
    ranks = [forked(_rank, rank, world, store, folder, program, given, daemon=True) for rank in range(world)]
    for process in ranks:
        process.start()
    deadline = time.monotonic() + seconds
    try:
        while any(process.exitcode is None for process in ranks) and not any(process.exitcode for process in ranks):
            if time.monotonic() > deadline:
                raise AssertionError(f"{world} ranks are not done after {seconds} s")
            time.sleep(0.01)
    finally:
        for process in ranks:
            process.kill()
            process.join()
    errors = [path.read_text() for path in sorted(folder.glob("error_*.txt"))]
    assert not errors, "\n".join(errors)
    assert not any(process.exitcode for process in ranks), "a rank died without a word"


def _rank(
    rank: int, world: int, store: Path, folder: Path, program: Callable[..., Any], given: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
        result = program(*given)
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        (folder / f"error_{rank}.txt").write_text(f"rank {rank}:\n{traceback.format_exc()}")
        raise SystemExit(1) from None
    torch.save(result, folder / f"result_{rank}.pt")
