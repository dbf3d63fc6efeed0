"""Work that is done, one line of JSON for each piece of it, so that a killed job goes on where it was.

The first line says what the work is about; a job with other settings is refused. A process that was killed while it
wrote leaves at most its last line torn, which is cut off: that piece is done again, and no other.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from whet.config.values import show
from whet.errors import UserError
from whet.tracking.run_folder import clean

READ_BYTES = 1 << 22
SYNC_SECONDS = 1.0  # a power cut costs at most so much; a kill costs nothing, as lines are with the system by then


class Journal:
    """Records by key, on disk as soon as `add` returns. One process has it at a time."""

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self.path = path
        self._places: dict[str, tuple[int, int]] = {}  # where the line of a key begins, and its length
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        self._synced = time.monotonic()
        try:
            self._lock()
            self._end = self._read(json.loads(json.dumps(about)))
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __contains__(self, key: str) -> bool:
        return key in self._places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, key: str) -> Any:
        place, length = self._places[key]
        return json.loads(os.pread(self._file, length, place))["record"]

    def add(self, key: str, record: Any) -> None:
        """Write a record; a key that is there keeps its first."""
        if key not in self._places:
            self._append({"key": key, "record": record}, key)

    def close(self) -> None:
        """Let another process have it."""
        os.fsync(self._file)
        os.close(self._file)

    def _append(self, value: dict[str, Any], key: str | None) -> None:
        data = clean(json.dumps(value, ensure_ascii=False)).encode() + b"\n"
        written = 0
        while written < len(data):
            written += os.pwrite(self._file, data[written:], self._end + written)
        if key is not None:
            self._places[key] = (self._end, len(data))
        self._end += len(data)
        if time.monotonic() - self._synced > SYNC_SECONDS:
            os.fsync(self._file)
            self._synced = time.monotonic()

    def _read(self, about: dict[str, Any]) -> int:
        """Take in what is there, cut off a torn end, and return where the next line goes."""
        end, known = 0, False
        for number, line in self._lines():
            try:
                value = json.loads(line) if line.endswith(b"\n") else None
            except ValueError:
                value = None
            if not isinstance(value, dict):
                if end + len(line) < os.fstat(self._file).st_size:
                    raise UserError(f"{self.path}:{number}: damaged; remove the file, and the work begins anew")
                break
            if number == 1:
                self._compare(value.get("about"), about)
                known = True
            else:
                self._places[value["key"]] = (end, len(line))
            end += len(line)
        os.ftruncate(self._file, end)
        self._end = end
        if not known:
            self._append({"about": about}, None)
        return self._end

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """Every line with its number; read by the one descriptor, as closing another would give the lock up."""
        place, number, rest = 0, 0, b""
        while block := os.pread(self._file, READ_BYTES, place):
            place += len(block)
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                number += 1
                yield number, line + b"\n"
        if rest:
            yield number + 1, rest

    def _compare(self, before: Any, now: dict[str, Any]) -> None:
        if not isinstance(before, dict):
            raise UserError(f"{self.path} was not written by whet; remove it, or name another output")
        changed = [name for name in before.keys() | now.keys() if before.get(name) != now.get(name)]
        if changed:
            texts = [f"{name}={show(before.get(name))} (now {show(now.get(name))})" for name in sorted(changed)]
            raise UserError(
                f"{self.path} holds work that was done with {', '.join(texts)}: go on with the same settings, remove "
                "the file to begin anew, or name another output"
            )

    def _lock(self) -> None:
        try:
            # Not flock, which processes that this one starts would go on holding after it was killed.
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{self.path} is in use by another process: wait for it to end, or name another output"
            ) from None
        except OSError:
            return  # some cluster file systems are mounted without locks
