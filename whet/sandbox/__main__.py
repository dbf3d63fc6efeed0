"""`python -m whet.sandbox`: run programs that arrive as JSON lines on stdin, and write results as JSON lines.

A line is {"program": TEXT}, with any of "stdin", "timeout", "memory_mb", "processes", "output_bytes", "disk_mb",
"language", "files" ({path: base64}) and "id". Results come in the order of the lines, each with the line's "id" and the
fields that `whet sandbox FILE` prints; a line that cannot be run gives {"id": ..., "error": SENTENCE}. Options:
`--workers N`, `--confine auto|namespaces|landlock`; with a file's name or --layers it is `whet sandbox`.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from whet.errors import UserError
from whet.sandbox.command import main as command
from whet.sandbox.limits import Limits
from whet.sandbox.pool import Sandbox

_FIELDS = ("timeout", "memory_mb", "processes", "output_bytes", "disk_mb")
_KNOWN = {"program", "stdin", "language", "files", "id", *_FIELDS}


def main(arguments: list[str]) -> int:
    """Run every line of stdin; 0 at its end, 2 if nothing can be confined."""
    workers, layers = os.cpu_count() or 1, "auto"
    try:
        while arguments and arguments[0] in ("--workers", "--confine"):
            name, value, *arguments = [*arguments, ""] if len(arguments) == 1 else arguments
            if name == "--confine":
                layers = value
            elif value.isdecimal():
                workers = int(value)
            else:
                raise UserError(f"--workers {value}: write a number")
        if arguments:
            return command(arguments)
        with Sandbox(workers, layers) as sandbox:
            for answer in answers(sandbox, sys.stdin.buffer):
                print(json.dumps(answer), flush=True)
    except UserError as error:
        print(f"whet: {error}", file=sys.stderr)
        return 2
    return 0


def answers(sandbox: Sandbox, lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the answer to each line in their order, with as many running at once as the pool has workers."""
    waiting: deque[Future[dict[str, Any]]] = deque()
    with ThreadPoolExecutor(sandbox.workers) as threads:
        for line in lines:
            if line.strip():
                waiting.append(threads.submit(answer, sandbox, line))
            while waiting and (waiting[0].done() or len(waiting) >= 2 * sandbox.workers):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def answer(sandbox: Sandbox, line: bytes) -> dict[str, Any]:
    """Run the program of one line."""
    identity = None
    try:
        order = json.loads(line)
        if not isinstance(order, dict):
            raise UserError('a line is an object such as {"program": "print(1)"}')
        identity = order.get("id")
        unknown = sorted(set(order) - _KNOWN)
        if unknown:
            raise UserError(f"there is no field {unknown[0]}")
        for name in ("program", "stdin", "language"):
            if not isinstance(order.get(name, ""), str) or (name == "program" and name not in order):
                raise UserError(f"{name} must be text")
        files = {name: base64.b64decode(text) for name, text in dict(order.get("files") or {}).items()}
        limits = Limits(**{name: order[name] for name in _FIELDS if name in order})
        result = sandbox.run(order["program"], order.get("stdin", ""), limits, files, order.get("language", "python"))
        found = result.to_dict()
    except UserError as error:
        found = {"error": str(error)}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        found = {"error": f"the line cannot be read: {error}"}
    return {**({"id": identity} if identity is not None else {}), **found}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
