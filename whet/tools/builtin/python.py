"""Python interpreter: programs of the policy run confined in whet's sandbox."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from whet.tools.protocol import PlainTool, ToolResult, function_schema

if TYPE_CHECKING:
    from whet.sandbox import Result, Sandbox

MOST_CHARACTERS = 10_000  # of output that the policy reads
_REPLAY = """import contextlib as _c, io as _i
with _c.redirect_stdout(_i.StringIO()), _c.redirect_stderr(_i.StringIO()):
    exec(compile({before!r}, "earlier", "exec"), globals())
exec(compile({program!r}, "program", "exec"), globals())
"""


class Python(PlainTool):
    """Runs programs; with `keeps_state` what earlier programs of a sample defined is there again."""

    name = "python"
    schema = function_schema(
        "python",
        "Run a Python program and return what it prints. There is no network and no access to files.",
        {"code": {"type": "string", "description": "the program"}},
        ["code"],
    )

    def __init__(
        self, keeps_state: bool = False, timeout: float = 10.0, memory_mb: int = 512, workers: int = 2
    ) -> None:
        """`timeout` in seconds and `memory_mb` bound each program; `workers` run at a time."""
        self._keeps_state, self._workers = keeps_state, workers
        self._timeout, self._memory_mb = timeout, memory_mb
        self._sandbox: Sandbox | None = None
        self._lock = threading.Lock()
        self._earlier: dict[str, list[str]] = {}  # programs of a sample that ended well

    def execute(self, sample_id: str, arguments: dict[str, Any]) -> ToolResult:
        """Run `code` in a process of its own."""
        code = str(arguments["code"])
        earlier = self._earlier.get(sample_id, [])
        program = _REPLAY.format(before="\n".join(earlier), program=code) if earlier else code
        result = self._opened().run(program)
        if result.status == "ok" and self._keeps_state:
            self._earlier.setdefault(sample_id, []).append(code)
        return ToolResult(_text(result), failed=result.status != "ok")

    def release(self, sample_id: str) -> None:
        """Forget what the sample ran."""
        self._earlier.pop(sample_id, None)

    def close(self) -> None:
        """End the sandbox's processes."""
        with self._lock:
            if self._sandbox is not None:
                self._sandbox.close()
                self._sandbox = None

    def _opened(self) -> Sandbox:
        from whet.sandbox import Limits, Sandbox

        with self._lock:
            if self._sandbox is None:
                limits = Limits(timeout=self._timeout, memory_mb=self._memory_mb)
                self._sandbox = Sandbox(workers=self._workers, limits=limits)
            return self._sandbox


def _text(result: Result) -> str:
    text = result.stdout if result.status == "ok" else f"{result.stdout}{result.stderr}[{result.status}]"
    if len(text) > MOST_CHARACTERS:
        half = MOST_CHARACTERS // 2
        text = f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"
    return text or "(no output: print what you want to see)"


TOOL = Python
