"""`whet board`: runs as a page in the browser."""

from __future__ import annotations

import os
from pathlib import Path

from whet.cli.command import Command
from whet.config.options import read_options
from whet.errors import UserError

_DEFAULT = "checkpoints"
_PORT = 8766

_HELP = f"""\
usage: whet board [RUN|FOLDER ...] [--port N] [--read-only] [--control]

A page on this machine over runs, finished, stopped or still going on: a table with states, curves and findings; any
metric of several runs; where the time of a step went; samples of a prompt side by side with scores and advantages;
search by text, score and length; tokens coloured by log-prob, entropy or advantage; a sample drawn again or branched at
a token; two samples side by side; what a config changes. Runs are looked for in the folders that are named, {_DEFAULT}
where none is. Nothing is fetched from the network.

  --port N         {_PORT}; 0 takes one that is free
  --read-only      print a second address, for others: with it nothing can be started
  --control        let the page ask a run that is going on to stop, save or validate after its current step

The address that is printed has a token: who has it can read the runs. On another machine, forward the port:
ssh -L {_PORT}:127.0.0.1:{_PORT} HOST

Examples:
  whet board
  whet board checkpoints/whet/quickstart
  whet board runs sweep --port 0

Guide: docs/board.md
"""


def _run(arguments: list[str]) -> int:
    options = read_options("board", arguments, ("--port",), ("--read-only", "--control"))
    paths = [Path(os.path.expanduser(word)) for word in options.words or [_DEFAULT]]
    for path in paths:
        if not path.is_dir():
            hint = "" if options.words else "; name the folders of your runs"
            raise UserError(f"whet board: there is no folder {path}{hint}")
    port = _port(options.last("--port", str(_PORT)))
    from whet.board.plotly_file import check_libraries

    check_libraries()

    from whet.board.server import serve

    read_only, control = (switch in options.switches for switch in ("--read-only", "--control"))
    serve(paths, port, lambda text: print(text, flush=True), read_only, control)
    return 0


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise UserError(f"whet board: --port {text} must be a number from 0 to 65535")
    return int(text)


COMMAND = Command(summary="show runs, samples and tokens as a page in the browser", help=_HELP, run=_run)
