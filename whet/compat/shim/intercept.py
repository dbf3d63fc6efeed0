"""Decide what one call of python, torchrun or ray inside a script is: a main of the other system, or anything else.

Run as a file by the programs of `folder.py`; it imports nothing of whet, so that other calls start at once.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

_ENTRY = str(Path(__file__).with_name("entry.py"))
_WITH_VALUE = ("-X", "-W", "--check-hash-based-pycs")
_TORCHRUN = ("torch.distributed.run", "torch.distributed.launch")
_RAY_DIRECTORY = "--working-dir"


def main(program: str, arguments: list[str]) -> int:
    """Run or record one call; return its exit code where it does not replace this process."""
    told = json.loads(os.environ["WHET_AS"])
    if program == "ray":
        return _ray(told, arguments)
    if program == "torchrun":
        return _torchrun(told, arguments)
    module, rest = _target(arguments)
    if module in _TORCHRUN:
        return _torchrun(told, rest)
    if entry := _entry(told, module):
        return _enter(told, entry, rest, [])
    if re.match(r"(verl|recipe)\w*\.(\w+\.)*\w*main\w*$", module) and not told["record"]:
        print(f"whet as: {module} is no main that whet runs; it is run as it is", file=sys.stderr, flush=True)
    return _real(told, program, arguments)


def _target(arguments: list[str]) -> tuple[str, list[str]]:
    """Return the module or the file that Python is asked to run, and its arguments; empty for anything else."""
    at = 0
    while at < len(arguments):
        argument = arguments[at]
        if argument == "-m":
            return arguments[at + 1] if at + 1 < len(arguments) else "", arguments[at + 2 :]
        if argument in ("-c", "-") or argument.startswith("-c"):
            return "", []
        if argument in _WITH_VALUE:
            at += 2
        elif argument.startswith("-m") and not argument.startswith("--"):
            return argument[2:], arguments[at + 1 :]
        elif argument.startswith("-"):
            if argument.endswith("m") and not argument.startswith("--"):  # -um MODULE
                return arguments[at + 1] if at + 1 < len(arguments) else "", arguments[at + 2 :]
            at += 1
        else:
            return argument, arguments[at + 1 :]
    return "", []


def _entry(told: dict, module: str) -> str:
    """Return the main that a module or a file names, also from within its folder (`cd verl/trainer`), or nothing."""
    if not module or module.startswith("-"):
        return ""
    if _among(told["modules"], module):
        return module
    return _among(told["modules"], os.path.join(os.getcwd(), module))


def _among(mains: list[str], module: str) -> str:
    name = module.removesuffix(".py").replace("/", ".").lstrip(".")
    return next((known for known in mains if name == known or name.endswith(f".{known}")), "")


def _torchrun(told: dict, arguments: list[str]) -> int:
    for at, argument in enumerate(arguments):
        if entry := _entry(told, argument):
            launcher = [each for each in arguments[:at] if each not in ("-m", "--module")]
            return _enter(told, entry, arguments[at + 1 :], launcher, torchrun=True)
    return _real(told, "torchrun", arguments)


def _ray(told: dict, arguments: list[str]) -> int:
    if arguments[:2] == ["job", "submit"] and "--" in arguments:
        at = arguments.index("--")
        options, command = arguments[2:at], arguments[at + 1 :]
        print("whet as: the command of `ray job submit` runs here, in this process group", file=sys.stderr, flush=True)
        return subprocess.call(command, cwd=_working_directory(options))
    if told["record"] is None and _find(told, "ray") is None:
        print(f"whet as: ray {' '.join(arguments[:1])} is left out: Ray is not installed", file=sys.stderr, flush=True)
        return 0
    return _real(told, "ray", arguments)


def _working_directory(options: list[str]) -> str | None:
    for at, option in enumerate(options):
        name, _, value = option.partition("=")
        if name == _RAY_DIRECTORY:
            folder = value or (options[at + 1] if at + 1 < len(options) else "")
            return folder if os.path.isdir(folder) else None
    return None


def _enter(told: dict, module: str, arguments: list[str], launcher: list[str], torchrun: bool = False) -> int:
    if told["record"]:
        named = re.findall(r"oc\.env:\s*(\w+)", " ".join(arguments))
        variables = {name: os.environ[name] for name in named if name in os.environ}  # that the script may have set
        call = {"module": module, "args": arguments, "cwd": os.getcwd(), "launcher": launcher, "variables": variables}
        _note(told, call | {"entry": True})
        return 0
    command = [_ENTRY, told["system"], module, json.dumps(told["options"]), *arguments]
    if torchrun:
        os.environ["WHET_AS_TORCHRUN"] = "1"
        command = ["-m", "torch.distributed.run", *launcher, *command]
    sys.stdout.flush()
    return os.execv(told["python"], [told["python"], *command])


def _real(told: dict, program: str, arguments: list[str]) -> int:
    if told["record"]:
        _note(told, {"program": program, "args": arguments, "cwd": os.getcwd(), "entry": False})
        return 0
    found = _find(told, program)
    if found is None:
        print(f"whet as: {program}: command not found", file=sys.stderr)
        return 127
    return os.execv(found, [program, *arguments])


def _find(told: dict, program: str) -> str | None:
    folders = [each for each in os.environ.get("PATH", os.defpath).split(os.pathsep) if each != told["bin"]]
    return shutil.which(program, path=os.pathsep.join(folders))


def _note(told: dict, call: dict) -> None:
    with open(told["record"], "a", encoding="utf-8") as file:
        file.write(json.dumps(call) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
