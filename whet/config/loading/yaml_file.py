"""The layer that a YAML file gives, with the line of each key for error messages."""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from whet.config.loading.layer import Layer, record_tree
from whet.config.loading.yaml_text import MOST_BYTES, check_yaml
from whet.config.problems import Problem
from whet.config.schema import all_keys
from whet.config.spelling import hint
from whet.config.texts import name_problem, printable, text_problem
from whet.config.values import show
from whet.errors import UserError

EXTENDS = "extends"
MOST_FILES = 20  # that extend each other


def read_files(path: Path, below: tuple[Path, ...] = ()) -> list[tuple[Path, Layer]]:
    """Read a YAML file and, before it, the file that its `extends:` names, and so on down: later ones win.

    A file that cannot be read is a layer with that problem.
    """
    layer = Layer()
    try:
        if not os.path.isfile(path):
            raise UserError(_not_a_file(path, below))
        if path.resolve() in below:
            raise UserError(f"{path}: extends itself, by way of {' and '.join(map(str, below))}")
        tree, root = _parse(path)
        base = _base(path, tree, below)
    except UserError as error:
        layer.problems.append(Problem(str(error), hides_all=True))
        return [(path, layer)]
    bases = read_files(path.parent / os.path.expanduser(base), (*below, path.resolve())) if base else []
    if root is not None:
        _fill(layer, path, tree, root)
    return [*bases, (path, layer)]


def _base(path: Path, tree: dict[str, Any], below: tuple[Path, ...]) -> str | None:
    """Take the name of the file that this one extends out of the tree."""
    base = tree.pop(EXTENDS, None)
    if base is not None and not isinstance(base, str):
        raise UserError(f"{path}: {EXTENDS}: names one YAML file, relative to this one")
    problem = text_problem(base) or name_problem(base) if base else None
    if problem:
        raise UserError(f"{path}: {EXTENDS}: {show(base)} {problem}")
    if len(below) == MOST_FILES:
        raise UserError(f"{path}: {EXTENDS}: more than {MOST_FILES} files extend each other; join some of them")
    return base


def _not_a_file(path: Path, below: tuple[Path, ...]) -> str:
    asked = f"{below[-1]}: extends {path}, but" if below else f"config={path}:"
    if os.path.isdir(path):
        return f"{asked} it is a folder; name a YAML file in it"
    if os.path.exists(path):
        return f"{asked} it is no ordinary file; write the config to one"
    siblings = [str(path.parent / name) for name in _yaml_files(path.parent)]
    return f"{asked} there is no such file{hint(str(path), siblings)}"


def _yaml_files(folder: Path) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name.endswith((".yaml", ".yml"))]
    except OSError:  # no such folder, or none that may be read
        return []


def _fill(layer: Layer, path: Path, tree: Any, root: yaml.Node) -> None:
    nodes = _nodes(root, "")
    record_tree("", tree, functools.partial(_place_in_file, path, nodes), layer)
    for name, given in list(layer.items()):
        node = nodes.get(given.name)
        key = all_keys().get(name)
        if isinstance(given.value, int | float) and node is not None and key is not None and key.kind == "bounds":
            layer[name] = replace(given, value=node.value)
        if given.value is None and node is not None and node.value == "":
            error = UserError(f"{given.name}{given.place}: has no value; write null for none, or leave the key out")
            layer.refuse(error, name)
            del layer[name]


def _parse(path: Path) -> tuple[Any, yaml.Node | None]:
    """The file as plain values, and as YAML nodes, which know their lines."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1).decode("utf-8")
        check_yaml(text, str(path))
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is not None and not isinstance(root, yaml.MappingNode):
            raise UserError(f"{path}: must hold sections such as data: and worker:")
        tree = OmegaConf.to_container(OmegaConf.create(text), resolve=False) if root is not None else {}
    except UnicodeDecodeError as error:
        raise UserError(f"config={path}: is not a UTF-8 text file") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise UserError(f"{path}{line}: is not YAML: {printable(str(error.problem or error.context))}") from error
    except (OSError, ValueError, yaml.YAMLError, OmegaConfBaseException) as error:
        raise UserError(f"config={path}: cannot be read: {printable(str(error).splitlines()[0])}") from error
    return tree, root


def _nodes(node: yaml.Node, name: str) -> dict[str, yaml.Node]:
    """Every node of a YAML tree by its dotted name, for line numbers."""
    found = {name: node}
    if isinstance(node, yaml.MappingNode):
        for child, value in node.value:
            found |= _nodes(value, f"{name}.{child.value}" if name else str(child.value))
    return found


def _place_in_file(path: Path, nodes: dict[str, yaml.Node], name: str) -> str:
    node = nodes.get(name)
    return f" ({path}, line {node.start_mark.line + 1})" if node is not None else f" ({path})"
