"""Processes with what torchrun tells its own, started in a moment: forked from a server that has imported things once.

As torchrun does, this process keeps the store where they meet, and tells the others to end when one has ended badly.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fork_server import forked
from torch.distributed import TCPStore


def run_job(folder: Path, target: Callable[..., int], *args: Any, world: int = 2) -> tuple[list[int], list[str]]:
    """Exit codes and outputs of `target(*args)` on every rank, by rank; its working folder is `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    outputs = [folder / f"rank-{rank}.txt" for rank in range(world)]
    processes = [
        forked(_rank, rank, world, store.port, str(folder), str(outputs[rank]), target, args) for rank in range(world)
    ]
    for process in processes:
        process.start()
    told, end = False, time.monotonic() + 180
    while any(process.is_alive() for process in processes):
        assert time.monotonic() < end, _kill(processes, outputs)
        if not told and any(process.exitcode for process in processes):
            told = True
            for process in processes:
                if process.is_alive():
                    with suppress(ProcessLookupError):  # it may end by itself meanwhile
                        os.kill(process.pid, signal.SIGTERM)  # type: ignore[arg-type]
        time.sleep(0.05)
    return [process.exitcode or 0 for process in processes], [output.read_text() for output in outputs]


def _kill(processes: list[Any], outputs: list[Path]) -> str:
    for process in processes:
        process.kill()
    return "still running:\n" + "\n".join(output.read_text() for output in outputs)


def _rank(
    rank: int, world: int, port: int, folder: str, output: str, target: Callable[..., int], args: tuple[Any, ...]
) -> None:
    os.chdir(folder)
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(world),
        LOCAL_RANK=str(rank),
        LOCAL_WORLD_SIZE=str(world),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        TORCHELASTIC_USE_AGENT_STORE="True",
        OMP_NUM_THREADS="1",
    )
    sys.exit(target(*args))
