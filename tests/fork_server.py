"""The server from which tests fork processes: it has imported, once, what each of them would import anew.

There is one in a process, so what it loads is listed here and nowhere else. It must start no thread: forks have none.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from typing import Any

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    [
        "fork_begin",
        "peft",
        "torch.distributed.fsdp",
        "transformers.models.llama.modeling_llama",
        "transformers.models.qwen2_5_vl.modeling_qwen2_5_vl",
        "whet.algos.advantages.grpo",
        "whet.algos.losses.ppo",
        "whet.cli.train",
        "whet.config.checks.files",
        "whet.config.jobs",
        "whet.config.loading",
        "whet.config.loading.aliases",
        "whet.learn.critic",
        "whet.learn.reference",
        "whet.learn.sharding",
        "whet.model.lora",
        "whet.model.processor",
        "whet.plots.runs",
        "whet.rollout.engines.native.engine",
        "whet.tracking.loggers.console",
        "whet.tracking.loggers.file",
        "whet.training.job",
        "learn.samples",
        "fork_server",
        "fork_freeze",
    ]
)


def forked(target: Callable[..., Any], *given: Any, daemon: bool = False) -> Any:
    """Return a process that will call `target(*given)`; both must be what a module has by name, or plain values."""
    before = os.environ.get("PYTHONPATH")
    # The server does not look for modules where this process does; fork_freeze.py takes the folder off again.
    os.environ["PYTHONPATH"] = f"{Path(__file__).parent}{os.pathsep}{before or ''}"
    try:
        ensure_running()
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before
    return _SERVER.Process(target=target, args=given, daemon=daemon)


@dataclass(frozen=True)
class Ended:
    """A process that has ended."""

    code: int
    out: str
    err: str
    processor: float  # seconds that it took, with the processes that it waited for


def run_forked(target: Callable[..., Any], *given: Any, folder: Path, typed: str = "", seconds: float = 600.0) -> Ended:
    """Call `target(*given)` in a process of its own to its end, in a folder and with an input and outputs of its own.

    What it returns, or gives to `sys.exit`, is the exit code; of monkeypatch it sees nothing.
    """
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        (scratch / "in").write_text(typed)
        process = forked(_apart, target, given, str(folder), name)
        process.start()
        process.join(seconds)
        hangs = process.exitcode is None
        if hangs:
            process.kill()
            process.join()
        out, err, used = ((scratch / part).read_text() if (scratch / part).exists() else "" for part in OUTPUTS)
        assert not hangs, f"still running after {seconds} s:\n{out}{err}"
        return Ended(process.exitcode, out, err, float(used or "nan"))


def run_script(path: Path, *arguments: str, folder: Path) -> Ended:
    """Run a Python file as `python path arguments` does, in a folder."""
    return run_forked(_script, str(path), list(arguments), folder=folder)


OUTPUTS = ("out", "err", "used")


def _apart(target: Callable[..., Any], given: tuple[Any, ...], folder: str, scratch: str) -> None:
    os.chdir(folder)
    os.dup2(os.open(f"{scratch}/in", os.O_RDONLY), 0)
    sys.stdin = os.fdopen(0, closefd=False)  # multiprocessing has put another in its place
    for descriptor, name in enumerate(OUTPUTS[:2], start=1):
        os.dup2(os.open(f"{scratch}/{name}", os.O_WRONLY | os.O_CREAT), descriptor)
    try:
        code = target(*given)
    finally:
        Path(scratch, "used").write_text(str(sum(os.times()[:4])))
    sys.exit(code)


def _script(path: str, arguments: list[str]) -> None:
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(path))
    runpy.run_path(path, run_name="__main__")
