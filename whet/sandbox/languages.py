"""Languages that programs may be written in: Python, and C++ and bash where their tools are installed."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace

from whet.errors import UserError
from whet.sandbox.limits import Limits

NAMES = {
    "python": "python",
    "python3": "python",
    "py": "python",
    "cpp": "cpp",
    "c++": "cpp",
    "bash": "bash",
    "sh": "bash",
}
_COMPILE_SECONDS, _COMPILE_MB, _COMPILE_DISK = 30.0, 2048, 256


@dataclass(frozen=True)
class Language:
    """The commands that compile and run a program."""

    name: str
    file: str  # name of the program in its directory
    argv: tuple[str, ...] = ()
    compiler: tuple[str, ...] | None = None
    compile_seconds: float = _COMPILE_SECONDS

    def bounds(self, limits: Limits) -> Limits:
        """Return the limits of the compiler, which needs more memory than most programs."""
        return replace(
            limits,
            timeout=self.compile_seconds,
            memory_mb=max(_COMPILE_MB, limits.memory_mb),
            processes=max(16, limits.processes),
            disk_mb=max(_COMPILE_DISK, limits.disk_mb),
        )


def language(name: str) -> Language:
    """Return a language by name; UserError if it is not known or its tools are not installed."""
    found = NAMES.get(name.lower())
    if found == "python":
        return Language("python", "program.py")
    if found == "bash":
        return Language("bash", "program.sh", argv=(_tool("bash", name), "program.sh"))
    if found == "cpp":
        compiler = (_tool("g++", name), "-O2", "-std=c++17", "-o", "program", "program.cpp")
        return Language("cpp", "program.cpp", argv=("./program",), compiler=compiler)
    raise UserError(f"language={name[:40]!r}: the sandbox runs python, cpp and bash")


def installed() -> list[str]:
    """Return the languages that can be used here."""
    return ["python", *(["cpp"] if shutil.which("g++") else []), *(["bash"] if shutil.which("bash") else [])]


def _tool(program: str, name: str) -> str:
    found = shutil.which(program, path="/usr/local/bin:/usr/bin:/bin")
    if found is None:
        raise UserError(f"language={name}: {program} is not installed in /usr/bin, /usr/local/bin or /bin")
    return found
