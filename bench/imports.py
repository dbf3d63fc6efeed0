"""Modules of whet that a run imports, and their lines of code.

    python bench/imports.py                          # the quickstart for one step
    python bench/imports.py --list worker.rollout.name=hf

Runs `whet train` for one step in a fresh process and prints how many modules of whet that process imported and how many
lines of code they have; blank lines, comments and docstrings are not counted. Processes that the run starts (reward
workers, ranks) are not looked into. Further arguments are keys of the config; `--list` prints every module.
"""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
import tempfile
import time
import tokenize
from pathlib import Path

MOST_MODULES, MOST_LINES = 130, 8000  # what the quickstart may import
_RUN = """
import json, sys
from whet.cli import main
code = main(sys.argv[2:])
files = {name: module.__file__ for name, module in list(sys.modules.items()) if name.split(".")[0] == "whet"}
json.dump(files, open(sys.argv[1], "w"))
sys.exit(code)
"""
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def imported(arguments: list[str]) -> dict[str, str]:
    """Run `whet` with these arguments; the files of the modules of whet that it imported, by their names."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "modules.json"
        subprocess.run([sys.executable, "-c", _RUN, str(found), *arguments], check=True)
        return json.loads(found.read_text())


def quickstart(keys: list[str], folder: str) -> list[str]:
    """The arguments of one step of the quickstart, with further keys, in a run folder of its own."""
    ours = ["trainer.max_steps=1", "trainer.quiet=true", f"trainer.save_checkpoint_path={folder}"]
    return ["train", *ours, *keys]


def lines_of_code(source: str) -> int:
    """Lines that hold a token other than a comment or a docstring."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node, clean=False
        ):
            text = node.body[0]
            documented |= set(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            code |= set(range(token.start[0], token.end[0] + 1))
    return len(code - documented)


def main(arguments: list[str]) -> None:
    """Print the figures."""
    keys = [argument for argument in arguments if argument != "--list"]
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        files = imported(quickstart(keys, folder))
        seconds = time.perf_counter() - began
    lines = {name: lines_of_code(Path(file).read_text()) for name, file in sorted(files.items())}
    if len(arguments) > len(keys):
        for name, count in lines.items():
            print(f"{count:6}  {name}")
    print(f"modules of whet: {len(lines)} (at most {MOST_MODULES})")
    print(f"lines of code: {sum(lines.values())} (at most {MOST_LINES})")
    print(f"one step from start to end: {seconds:.1f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
