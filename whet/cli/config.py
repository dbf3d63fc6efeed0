"""`whet config`: the keys of a config, with their values and help."""

from __future__ import annotations

from whet.cli.command import Command

_HELP = """\
usage: whet config [config=FILE] [key=value ...]
       whet config --diff [config=FILE] [key=value ...]

Print every key with its type, value and meaning; --diff prints only what differs from the defaults.

Examples:
  whet config
  whet config | grep worker.rollout
  whet config --diff config={examples}/quickstart.yaml worker.rollout.n=8

The same as a page: docs/config.md
"""


def _run(arguments: list[str]) -> int:
    from whet.config import load_config
    from whet.config.describe import describe, diff

    only_changes = "--diff" in arguments
    config = load_config([argument for argument in arguments if argument != "--diff"])
    print(diff(config) if only_changes else describe(config))
    return 0


COMMAND = Command(summary="print every key with its type, default and meaning", help=_HELP, run=_run)
