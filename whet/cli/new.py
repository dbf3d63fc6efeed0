"""`whet new`: a project that runs as it is."""

from __future__ import annotations

import os
from pathlib import Path

from whet.cli.command import Command
from whet.errors import UserError

_HELP = """\
usage: whet new DIR [--sft | --vision | --agent]

Write a project into a new folder: rows, a reward, a config, a README, and the same as a Python script and a notebook.
It trains a tiny built-in model on two CPU cores; change the rows, the reward and the model to make it yours.

  --sft       learning from demonstrations instead of rewards
  --vision    prompts with images
  --agent     episodes of several turns with an environment

Examples:
  whet new my_project
  whet new my_sft_project --sft
"""
_KINDS = {"--sft": "sft", "--vision": "vision", "--agent": "agent"}


def _run(arguments: list[str]) -> int:
    folders = [argument for argument in arguments if not argument.startswith("-")]
    options = [argument for argument in arguments if argument.startswith("-")]
    unknown = [option for option in options if option not in _KINDS]
    if unknown:
        raise UserError(f"whet new has no option {unknown[0]}; there are {', '.join(_KINDS)}")
    if len(folders) != 1 or len(options) > 1:
        raise UserError("whet new takes one folder and at most one kind: whet new my_project --vision")
    from whet.assets.project import write_project

    kind = _KINDS[options[0]] if options else "rl"
    folder = Path(os.path.expanduser(folders[0]))
    for file in write_project(folder, kind):
        print(f"  {file}{os.sep if file.is_dir() else ''}")
    job = "sft" if kind == "sft" else "train"
    print(f"next: cd {folder} && whet {job} config=config.yaml")
    return 0


COMMAND = Command(summary="write a project that runs as it is: rows, reward, config, notebook", help=_HELP, run=_run)
