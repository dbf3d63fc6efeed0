"""`whet config`: the keys of a config, with their values and help."""

from __future__ import annotations

import os
import shutil
import sys

from whet.cli.command import Command

_HELP = """\
usage: whet config [FILE.yaml] [key=value ...]
       whet config WORD ...
       whet config --diff [FILE.yaml] [key=value ...]

Print every key with its type, value and meaning, or those with all WORDs in their name or help; --diff prints only what
differs from the defaults.

Examples:
  whet config
  whet config warmup
  whet config --diff config={examples}/quickstart.yaml worker.rollout.n=8

The same as a page: docs/config.md
"""


def _run(arguments: list[str]) -> int:
    from whet.config import load_config
    from whet.config.describe import describe, diff, search
    from whet.config.loading.arguments import is_config_file

    words = [word for word in arguments if "=" not in word and not word.startswith("-") and not is_config_file(word)]
    config = load_config([argument for argument in arguments if argument != "--diff" and argument not in words])
    if words:
        print(search(words, config, _columns()))
    else:
        print(diff(config) if "--diff" in arguments else describe(config, _columns()))
    return 0


def _columns() -> int | None:
    """Return the width to wrap text to; None where output goes to a file or a pipe and COLUMNS does not say."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or "COLUMNS" in os.environ else None


COMMAND = Command(summary="print every key with its type, default and meaning", help=_HELP, run=_run)
