"""Run a Python program in this process as `python program.py` would, or call a function of it.

Nothing here decides whether a program is right: it shares its process with the program, which can replace all of it.
"""

from __future__ import annotations

import atexit
import gc
import linecache
import os
import random
import sys
import threading
import traceback
import types
from collections.abc import Callable
from typing import Any

FILE = "program.py"


def run(mode: str, request: dict[str, Any], channel: int) -> None:
    """Run a request of any kind to its end; never returns."""
    work: Callable[[], None]
    if mode == "script":
        os.close(channel)
        work = lambda: load(request["source"], "__main__")  # noqa: E731
    elif mode == "call":
        from whet.sandbox.calls import answer_call

        work = lambda: answer_call(request, channel)  # noqa: E731
    elif mode == "serve":
        from whet.sandbox.objects import serve_program

        work = lambda: serve_program(request, channel)  # noqa: E731
    else:
        from whet.sandbox.examiner import run_tests

        work = lambda: run_tests(request, channel)  # noqa: E731
    _forget()
    _end(_guarded(work))


def load(source: str, name: str, file: str = FILE) -> types.ModuleType:
    """Compile a program and execute it as a module of this name."""
    module = types.ModuleType(name)
    module.__file__ = file
    sys.modules[name] = module
    lines = source.splitlines(keepends=True)
    linecache.cache[file] = (len(source), None, lines, file)  # tracebacks show the program's lines
    exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)
    return module


def _forget() -> None:
    """Give the program the state of a new interpreter, with the modules of the standard library that are loaded."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "whet"]:
        del sys.modules[name]
    sys.argv = [FILE]
    sys.path.insert(0, os.getcwd())
    random.seed(0)  # an execution gives the same result every time
    gc.enable()


def _guarded(work: Callable[[], None]) -> int:
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
    frames = error.__traceback__
    while frames is not None and os.path.dirname(frames.tb_frame.f_code.co_filename) == os.path.dirname(__file__):
        frames = frames.tb_next
    try:
        traceback.print_exception(type(error), error, frames)
    except BaseException:  # of an exception that cannot be shown
        os.write(2, type(error).__name__.encode() + b"\n")


def _end(code: int) -> None:
    """End the process as the interpreter does: threads, exit functions, buffers."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
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
