"""`whet model`: a built-in model as a folder."""

from __future__ import annotations

from pathlib import Path

from whet.cli.command import Command
from whet.errors import UserError

_HELP = """\
usage: whet model NAME DIR

Write a built-in model as a Hugging Face folder, which must be new or empty. The models: quickstart, smollm2 (needs
whet[smollm2]), vision, vision3, sentences.

Examples:
  whet model quickstart my_model
  whet model vision my_vision_model
"""


def _run(arguments: list[str]) -> int:
    if len(arguments) != 2:
        raise UserError("whet model takes a name and a folder: whet model smollm2 DIR")
    from whet.assets.models import write_model

    write_model(arguments[0], Path(arguments[1]), print)
    return 0


COMMAND = Command(summary="write a built-in model as a Hugging Face folder", help=_HELP, run=_run)
