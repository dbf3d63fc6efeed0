"""Recipes that come with whet: folders of `examples/recipes/` that hold a `recipe.yaml`.

`recipe.yaml` says in a line each what the recipe is, the paper, what its `config.yaml` needs, and which commands make
up its tiny run on a CPU. A config of a recipe names what it extends as `whet/...`, so a copy of the folder is complete.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from whet.config.examples import examples_folder
from whet.errors import UserError

FILE = "recipe.yaml"
PROGRAMS = ("whet", "python")  # that a tiny run may start


@dataclass(frozen=True)
class Recipe:
    """One recipe, as its `recipe.yaml` describes it."""

    name: str
    folder: Path
    summary: str
    paper: str
    hardware: str  # of config.yaml
    time: str  # of config.yaml, or "not run here"
    tiny: tuple[str, ...]  # commands of the tiny run, in order, in the recipe's folder
    seconds: int  # of the tiny run, on one CPU core, as measured
    needs: tuple[str, ...] = ()  # packages that the tiny run imports and whet does not install

    def commands(self, arguments: list[str]) -> list[list[str]]:
        """Return the words of each command.

        `arguments` (key=value) go to every `whet train`; where there is none to every `whet sft`, else to the last
        command. A supervised stage before reinforcement learning stays as it is: the next command names its last step.
        """
        lines = [shlex.split(line) for line in self.tiny]
        jobs = [words[:2] for words in lines]
        taker = next((job for job in (["whet", "train"], ["whet", "sft"]) if job in jobs), jobs[-1])
        return [[*words, *arguments] if job == taker else words for words, job in zip(lines, jobs, strict=True)]


def recipes_folder() -> Path:
    """Return the folder of all recipes."""
    return examples_folder() / "recipes"


def recipes() -> list[Recipe]:
    """Return every recipe, in the order of names."""
    return [read_recipe(file.parent) for file in sorted(recipes_folder().glob(f"*/{FILE}"))]


def find_recipe(name: str) -> Recipe:
    """Return a recipe by its name."""
    folder = recipes_folder() / name
    if "/" in name or not (folder / FILE).is_file():
        from whet.config.problems import hint

        names = [file.parent.name for file in recipes_folder().glob(f"*/{FILE}")]
        raise UserError(f"there is no recipe {name!r}{hint(name, names)} (whet recipe lists them)")
    return read_recipe(folder)


def read_recipe(folder: Path) -> Recipe:
    """Read the description of the recipe in a folder."""
    file = folder / FILE
    try:
        known: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
        names = {each.name for each in fields(Recipe)} - {"name", "folder"}
        if unknown := sorted(set(known) - names):
            raise ValueError(f"has {', '.join(unknown)}, which no recipe has")
        known |= {name: tuple(known[name]) for name in ("tiny", "needs") if name in known}
        recipe = Recipe(name=folder.name, folder=folder, **known)
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        raise UserError(f"{file} is no description of a recipe: {error}") from error
    if wrong := [line for line in recipe.tiny if shlex.split(line)[:1] not in [[each] for each in PROGRAMS]]:
        raise UserError(f"{file}: tiny: {wrong[0]!r} starts neither {' nor '.join(PROGRAMS)}")
    return recipe


def copy_recipe(recipe: Recipe, folder: Path, arguments: Sequence[str] = ()) -> None:
    """Copy a recipe's files, which lie side by side, into a new or empty folder; the copies may be written.

    `arguments` (key=value) are those of the run that is to follow, for the message where an earlier copy is there.
    """
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UserError(_taken(recipe, folder, list(arguments)))
        folder.mkdir(parents=True, exist_ok=True)
        for path in recipe.folder.iterdir():
            if path.is_file():
                shutil.copyfile(path, folder / path.name)
    except OSError as error:
        raise UserError(
            f"{folder} cannot be written: {error}; name a folder that can: whet recipe {recipe.name} FOLDER"
        ) from error


def _taken(recipe: Recipe, folder: Path, arguments: list[str]) -> str:
    """Say that something is in the way; if it is an earlier copy of the recipe, how to run that."""
    said = f"{folder} exists and is not an empty folder; name a new one: whet recipe {recipe.name} NEW_FOLDER"
    earlier = folder / FILE
    if earlier.is_file() and earlier.read_bytes() == (recipe.folder / FILE).read_bytes():
        run = " && ".join(shlex.join(words) for words in recipe.commands(arguments))
        said += f". It is a copy of the recipe; run it with: cd {shlex.quote(str(folder))} && {run}"
    return said
