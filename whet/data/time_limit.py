"""A limit on the time that templates take: they are code that people share, and can loop for ever.

One thread watches all that is being rendered and raises `TooLongError` in a thread whose time is over. That reaches
Python code only: a single operation inside of C code ends first.
"""

from __future__ import annotations

import ctypes
import threading
import time
from types import TracebackType
from typing import ClassVar


class TooLongError(BaseException):
    """Rendering took longer than allowed; no `except Exception` of a template's own engine catches it."""


class TimeLimit:
    """Context that ends with `TooLongError` after `seconds`; entering it costs a microsecond, in any thread."""

    _lock = threading.Lock()
    _entered: ClassVar[set[TimeLimit]] = set()
    _wake = threading.Event()
    _watcher: threading.Thread | None = None

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._deadline = 0.0
        self._thread = 0
        self._is_over = False

    def __enter__(self) -> None:
        self._thread = threading.get_ident()
        self._deadline = time.monotonic() + self._seconds
        with self._lock:
            self._entered.add(self)
            # A forked child has the object but not the thread.
            if TimeLimit._watcher is None or not TimeLimit._watcher.is_alive():
                TimeLimit._watcher = threading.Thread(target=_watch, name="whet-time-limit", daemon=True)
                TimeLimit._watcher.start()
        self._wake.set()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._entered.discard(self)
        if self._is_over and kind is not TooLongError:  # it is still on its way to this thread
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), None)
            raise TooLongError

    @classmethod
    def stop_late(cls) -> bool:
        """Raise in every thread whose time is over; False if nothing is left to watch."""
        now = time.monotonic()
        with cls._lock:
            for each in list(cls._entered):
                if each._deadline < now:
                    each._is_over = True
                    cls._entered.discard(each)
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(each._thread), ctypes.py_object(TooLongError)
                    )
            return bool(cls._entered)


def _watch() -> None:
    while True:
        if not TimeLimit.stop_late():
            TimeLimit._wake.clear()
            if not TimeLimit.stop_late():  # nobody came between the two
                TimeLimit._wake.wait()
        time.sleep(0.2)
