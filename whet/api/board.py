"""`Run.board`: the board in a process of its own, for notebooks and scripts."""

from __future__ import annotations

import atexit
import html
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from whet.errors import UserError

_ADDRESS = re.compile(r"http://\S+")


class Board:
    """A board that is being served; its `url` holds the token that lets it be read."""

    def __init__(self, folders: Sequence[Path], port: int = 0) -> None:
        if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:
            raise UserError(f"board(port={port!r}): a port is a number from 0 (any that is free) to 65535")
        from whet.board.plotly_file import check_libraries

        check_libraries()
        command = [sys.executable, "-m", "whet", "board", *map(str, folders), "--port", str(port)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        atexit.register(self.close)
        assert self._process.stdout is not None, "it was opened with pipes"
        found = next((each for line in self._process.stdout if (each := _ADDRESS.search(line))), None)
        if found is None:
            _, said = self._process.communicate()
            raise UserError(f"the board did not start: {said.strip()[-500:]}")
        self.url = found[0]

    def close(self) -> None:
        """End the board."""
        atexit.unregister(self.close)
        if self._process.poll() is None:
            self._process.terminate()
        self._process.communicate()

    def __enter__(self) -> Board:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Board({self.url})"

    def _repr_html_(self) -> str:
        """Return a link for notebooks: the board allows no page of another address to frame it."""
        address = html.escape(self.url, quote=True)
        return f'<a href="{address}" target="_blank" rel="noreferrer">whet board</a>'
