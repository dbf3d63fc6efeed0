"""Run a Python program in this process as `python program.py` would, or call a function of it.

Nothing here decides whether a program is right: it shares its process with the program, which can replace all of it.
"""

from __future__ import annotations

import atexit
import gc
import linecache
import os
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

FILE = "program.py"
_HERE = os.path.dirname(os.path.abspath(__file__))


def run_script(source: str) -> None:
    """Run a program to its end; never returns."""
    _end(_guarded(lambda: load(source, "__main__")))


def run(mode: str, request: dict[str, Any], channel: int) -> None:
    """Run a request of another kind to its end; never returns."""
    _end(_guarded(lambda: MODES[mode](request, channel)))


def load(source: str, name: str, file: str = FILE) -> types.ModuleType:
    """Compile a program and execute it as a module of this name."""
    module = types.ModuleType(name)
    module.__file__ = file
    sys.modules[name] = module
    _sources[file] = source
    gc.enable()
    exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)
    return module


def _files(request: dict[str, Any], channel: int) -> None:
    """Run a program beside its files."""
    os.close(channel)
    load(request["source"], "__main__")


MODES: dict[str, Callable[[dict[str, Any], int], None]] = {"files": _files}  # others add themselves
_sources: dict[str, str] = {}


def _guarded(work: Callable[[], Any]) -> int:
    """Run to the end or an exception; return the exit code that Python gives it."""
    try:
        work()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:
        _show(error)
        return 1
    return 0


def _show(error: BaseException) -> None:
    """Print a traceback without the frames of this package."""
    for file, source in _sources.items():  # so that it shows the program's lines
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    frames = error.__traceback__
    while frames is not None and os.path.dirname(frames.tb_frame.f_code.co_filename) == _HERE:
        frames = frames.tb_next
    try:
        traceback.print_exception(type(error), error, frames)
    except BaseException:  # of an exception that cannot be shown
        os.write(2, type(error).__name__.encode() + b"\n")


def _end(code: int) -> None:
    """End the process as the interpreter does: threads, exit functions, buffers."""
    try:
        if threading := sys.modules.get("threading"):
            threading._shutdown()
        atexit._run_exitfuncs()
    except BaseException as error:
        code = code or 1
        _show(error)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # closed, or replaced by the program
            code = code or (120 if stream is sys.stdout and not getattr(stream, "closed", False) else 0)
    os._exit(code)
