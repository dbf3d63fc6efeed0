"""`whet recipe`: published recipes, copied out and run at a tiny size."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from whet.cli.command import Command
from whet.config.options import read_options
from whet.errors import UserError

if TYPE_CHECKING:
    from whet.assets.recipes import Recipe

_HELP = """\
usage: whet recipe
       whet recipe NAME [DIR] [key=value ...] [--copy]

List the recipes that come with whet: what each is, the hardware of its full config, and the time of its tiny run.
With a name, copy the recipe's folder (config, reward or environment, data preparation, README) to DIR, ./NAME if none
is given, and run its tiny config on this machine. key=value goes to its training (whet train, or whet sft where that is
all).

  --copy    copy the files and run nothing

Examples:
  whet recipe
  whet recipe char_count
  whet recipe dapo my_dapo trainer.max_steps=40
  whet recipe search_r1 --copy
"""


def _run(arguments: list[str]) -> int:
    from whet.assets.recipes import copy_recipe, find_recipe, recipes
    from whet.config.schema import all_keys

    options = read_options("recipe", arguments, switches=("--copy",))
    values = [each for each in options.words if "=" in each]
    names = [each for each in options.words if "=" not in each]
    if not arguments:
        print(_table(recipes()))
        return 0
    if not 1 <= len(names) <= 2 or not all(names):
        raise UserError("whet recipe takes the name of a recipe and at most one folder: whet recipe char_count")
    recipe = find_recipe(names[0])
    if len(names) == 2 and names[1] in all_keys():
        raise UserError(f"{names[1]} is a key without a value: whet recipe {recipe.name} {names[1]}=VALUE")
    folder = Path(os.path.expanduser(names[1] if len(names) == 2 else recipe.name))
    if not options.switches:
        _require(recipe)
    copy_recipe(recipe, folder, values)
    print(f"copied to {folder}{os.sep}: {', '.join(sorted(path.name for path in folder.iterdir()))}", flush=True)
    return 0 if options.switches else _run_tiny(recipe, folder, values)


def _table(listed: list[Recipe]) -> str:
    from whet.cli.fitting import columns, fitted

    width = max(len(recipe.name) for recipe in listed)
    lines = ["", "tiny: seconds of one CPU core; full: what config.yaml is made for", ""]
    for recipe in listed:
        lines.append(f"  {recipe.name:<{width}}  {recipe.summary};")
        full = f"{recipe.hardware}, {recipe.time}"
        lines.append(f"  {'':<{width}}  {recipe.paper}; tiny: {recipe.seconds} s; full: {full}")
    lines += ["", "whet recipe NAME copies one to ./NAME and runs it at its tiny size."]
    return fitted("\n".join(lines), columns())


def _require(recipe: Recipe) -> None:
    """Raise a `UserError` if a package that the tiny run imports is not installed."""
    from importlib.util import find_spec

    missing = [package for package in recipe.needs if find_spec(package) is None]
    if missing:
        raise UserError(
            f"the tiny run of {recipe.name} needs {', '.join(missing)}, not installed here (README.md of the recipe "
            f"says how); whet recipe {recipe.name} --copy copies its files alone"
        )


def _run_tiny(recipe: Recipe, folder: Path, values: list[str]) -> int:
    """Run the commands of the tiny run in the copied folder until one fails; return its exit code."""
    from whet.system.child import run_child

    # `python` of a recipe's config (worker.rollout.agent_command) is the one whose packages were looked for.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    environment = {**os.environ, "PATH": path}
    commands = recipe.commands(values)
    for i, words in enumerate(commands):
        print(f"{folder}$ {shlex.join(words)}", flush=True)
        start = [sys.executable, "-m", "whet"] if words[0] == "whet" else [sys.executable]
        code, stopped = run_child([*start, *words[1:]], folder, environment)
        if stopped:
            rest = " && ".join(shlex.join(each) for each in commands[i:])
            print(f"whet: stopped; it goes on with: cd {shlex.quote(str(folder))} && {rest}", file=sys.stderr)
            return 130
        if code:
            return code
    print(f"what was run, what to expect of it, and the full run ({recipe.hardware}): {folder / 'README.md'}")
    return 0


COMMAND = Command(summary="published recipes: list them, copy one out and run it", help=_HELP, run=_run)
