"""`whet config`: the keys of a config, with their values and help."""

from __future__ import annotations

from whet.cli.command import Command
from whet.cli.fitting import columns

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
        print(search(words, config, columns()))
    else:
        print(diff(config) if "--diff" in arguments else describe(config, columns()))
    return 0


COMMAND = Command(summary="print every key with its type, default and meaning", help=_HELP, run=_run)
