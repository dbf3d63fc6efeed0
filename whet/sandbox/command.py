"""`whet sandbox`: run one program confined, or say what this machine can confine by."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from whet.errors import UserError
from whet.sandbox.languages import installed
from whet.sandbox.limits import Limits
from whet.sandbox.pool import LAYERS, Sandbox

_ENDINGS = {".py": "python", ".cpp": "cpp", ".cc": "cpp", ".sh": "bash"}
_OPTIONS = {
    "--stdin": str,
    "--timeout": float,
    "--memory": int,
    "--processes": int,
    "--output": int,
    "--language": str,
    "--confine": str,
}
_LARGEST = 64 << 20  # bytes of a program or its input


def run(arguments: list[str]) -> int:
    """Run the command and return its exit code."""
    if not arguments:
        raise UserError("whet sandbox takes a file: whet sandbox program.py (whet sandbox --help)")
    if arguments == ["--layers"]:
        print(json.dumps(layers(), indent=2))
        return 0
    file, options = parse(arguments)
    limits = limits_of(options)
    program = _read(file).decode("utf-8", "surrogateescape")
    stdin = _read(options["--stdin"]) if "--stdin" in options else b""
    language = options.get("--language") or _ENDINGS.get(os.path.splitext(file)[1], "python")
    with Sandbox(1, options.get("--confine", "auto"), limits) as sandbox:
        result = sandbox.run(program, stdin, name=language)
    print(json.dumps(result.to_dict()))
    return 0


def parse(arguments: list[str]) -> tuple[str, dict[str, Any]]:
    """Return the file and the options of a command line; UserError for anything else."""
    files, options, left = [], {}, list(arguments)
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if name in _OPTIONS:
            if not equals and not left:
                raise UserError(f"whet sandbox: {name} needs a value")
            text = value if equals else left.pop(0)
            try:
                options[name] = _OPTIONS[name](text)
            except ValueError:
                raise UserError(f"whet sandbox: {name} {text}: write a number") from None
        elif word.startswith("--"):
            raise UserError(f"whet sandbox: there is no option {word} (whet sandbox --help lists them)")
        else:
            files.append(word)
    if len(files) != 1:
        raise UserError("whet sandbox: name one program: whet sandbox FILE.py")
    return files[0], options


def limits_of(options: dict[str, Any]) -> Limits:
    """Return the limits that options name, the defaults for the rest."""
    names = {"--timeout": "timeout", "--memory": "memory_mb", "--processes": "processes", "--output": "output_bytes"}
    return Limits(**{field: options[name] for name, field in names.items() if name in options})


def layers() -> dict[str, Any]:
    """Return what this machine can confine programs by, found out by confining one with each."""
    found: dict[str, Any] = {}
    for name in LAYERS:
        try:
            with Sandbox(1, name) as sandbox:
                result = sandbox.run("print('confined')")
                works = result.status == "ok" and result.stdout == "confined\n"
                found[name] = {"available": works, **sandbox.description}
                if not works:
                    found[name]["reason"] = result.stderr or result.status
        except UserError as error:
            found[name] = {"available": False, "reason": str(error)}
    chosen = next((name for name in LAYERS if found[name]["available"]), None)
    return {"auto": chosen, "languages": installed(), **found}


def _read(file: str) -> bytes:
    try:
        if not os.path.isfile(file):
            raise UserError(f"whet sandbox: there is no file {file}")
        with open(file, "rb") as opened:
            content = opened.read(_LARGEST + 1)
    except OSError as error:
        raise UserError(f"whet sandbox: {file} cannot be read ({error.strerror})") from None
    if len(content) > _LARGEST:
        raise UserError(f"whet sandbox: {file} has more than {_LARGEST >> 20} MB")
    return content


def main(arguments: list[str]) -> int:
    """Run the command; a mistake of the user's is a sentence on stderr and exit code 2."""
    try:
        return run(arguments)
    except UserError as error:
        print(f"whet: {error}", file=sys.stderr)
        return 2
