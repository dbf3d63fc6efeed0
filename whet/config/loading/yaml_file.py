"""The layer that a YAML file gives, with the line of each key for error messages.

A text is looked at before anything is built of it: PyYAML builds nested collections by recursion and lets an alias
stand for any number of copies; OmegaConf copies what aliases share. A text of one kilobyte can so end in a stack
overflow or fill the memory. The events of the parser come one after the other and cost nothing of this.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from whet.config.examples import beside_or_shipped
from whet.config.loading.layer import Layer, record_tree
from whet.config.problems import Problem, hint
from whet.config.schema import all_keys
from whet.config.texts import name_problem, printable, text_problem
from whet.config.values import show
from whet.errors import UserError

MOST_BYTES = 1 << 20
MOST_NODES = 4_000  # values once aliases are replaced by what they stand for; a whole config has some 300
DEEPEST = 50
LONGEST_NUMBER = 100
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast where PyYAML was built with libyaml
NUMBER = re.compile(r"[-+.]?[0-9][-+0-9_.:,a-fA-FxXoObBeE]*")
TAG = "tag:yaml.org,2002:"
TAGGED = {
    "str": re.compile(r"(?s).*"),
    "int": re.compile(r"[-+]?(0|[1-9][0-9]*)"),
    "float": re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"),
    "bool": re.compile(r"true|True|TRUE|false|False|FALSE"),
    "null": re.compile(r"null|Null|NULL|~|"),
    "map": None,
    "seq": None,
}
EXTENDS = "extends"
MOST_FILES = 20  # that extend each other


def check_yaml(text: str, where: str) -> None:
    """Raise a `UserError` for a YAML text that is too large, too deep, or has numbers or tags no key can take.

    `where` begins the sentence: a file's path, or a key and its value. Errors of syntax are left to who parses it.
    """
    if len(text.encode("utf-8", "replace")) > MOST_BYTES:
        raise UserError(f"{where}: is larger than {MOST_BYTES >> 20} MB, which is no config")
    try:
        _check_events(yaml.parse(text, Loader=LOADER), where)
    except (yaml.YAMLError, ValueError):  # the caller's parser says it better
        return


def _check_events(events: Iterator[yaml.Event], where: str) -> None:
    sizes: dict[str, int] = {}  # values that an alias stands for
    open_: list[tuple[str | None, int]] = []  # collections: their anchor, and the count at their beginning
    count = 0
    for event in events:
        line = f"{where}, line {event.start_mark.line + 1}" if event.start_mark else where
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes and any(anchor == event.anchor for anchor, _ in open_):
                raise UserError(f"{line}: *{event.anchor} stands inside what it names; write the value out")
            count += sizes.get(event.anchor, 1)
        elif isinstance(event, yaml.NodeEvent):
            count += 1
            _check_node(event, line)
            if isinstance(event, yaml.ScalarEvent):
                if event.anchor:
                    sizes[event.anchor] = 1
            else:
                sizes.pop(event.anchor or "", None)
                open_.append((event.anchor, count - 1))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, begin = open_.pop()
            if anchor:
                sizes[anchor] = count - begin
        if len(open_) > DEEPEST:
            raise UserError(f"{line}: is nested more than {DEEPEST} levels deep; no key needs that")
        if count > MOST_NODES:
            raise UserError(f"{line}: holds more than {MOST_NODES:,} values, aliases written out; no config needs that")


def _check_node(event: Any, line: str) -> None:
    if isinstance(event, yaml.ScalarEvent) and "${" in event.value:
        from whet.config.loading.interpolation import syntax_problem

        if problem := syntax_problem(event.value):
            raise UserError(f"{line}: {show(event.value)} {problem}")
    is_long = isinstance(event, yaml.ScalarEvent) and event.implicit[0] and len(event.value) > LONGEST_NUMBER
    if is_long and NUMBER.fullmatch(event.value):
        raise UserError(f"{line}: holds a number of {len(event.value)} characters; shorten it, or put it in quotes")
    tag = event.tag
    if tag is None or tag == "!":
        return
    name = tag.removeprefix(TAG)
    if not tag.startswith(TAG) or name not in TAGGED:
        raise UserError(f"{line}: the tag {printable(tag)[:80]} is not used in configs; remove it")
    form = TAGGED[name]
    if isinstance(event, yaml.ScalarEvent) == (form is None):
        raise UserError(f"{line}: the tag !!{name} does not go with its value; remove it")
    if form is not None and not (form.fullmatch(event.value) and (name == "str" or len(event.value) <= LONGEST_NUMBER)):
        raise UserError(f"{line}: {printable(event.value)[:80]} is no {name}, as the tag !!{name} says; remove it")


def read_files(path: Path) -> list[tuple[Path, Layer]]:
    """Read a YAML file and, before it, the files that its `extends:` names, and so on down: later ones win.

    A file that cannot be read is a layer with that problem.
    """
    return _read_above(path, (), [])


def _read_above(path: Path, below: tuple[Path, ...], opened: list[Path]) -> list[tuple[Path, Layer]]:
    """Read a file that those `below` extend, and what it extends; `opened` counts the files of the whole config."""
    layer = Layer()
    opened.append(path)
    try:
        if len(opened) > MOST_FILES:
            raise UserError(f"{path}: {EXTENDS}: more than {MOST_FILES} files extend each other; join some of them")
        if not os.path.isfile(path):
            raise UserError(_not_a_file(path, below))
        if path.resolve() in below:
            raise UserError(f"{path}: extends itself, by way of {' and '.join(map(str, below))}")
        tree, root = _parse(path)
        names = _bases(path, tree)
    except UserError as error:
        layer.problems.append(Problem(str(error), hides_all=True))
        return [(path, layer)]
    bases: list[tuple[Path, Layer]] = []
    for name in names:
        if len(opened) <= MOST_FILES:
            bases += _read_above(beside_or_shipped(name, path.parent), (*below, path.resolve()), opened)
    if root is not None:
        _fill(layer, path, tree, root)
    return [*bases, (path, layer)]


def _bases(path: Path, tree: dict[str, Any]) -> list[str]:
    """Take the names of the files that this one extends out of the tree."""
    given = tree.pop(EXTENDS, None)
    names = given if isinstance(given, list) else [] if given is None else [given]
    if not all(isinstance(name, str) and name for name in names):
        raise UserError(
            f"{path}: {EXTENDS}: names a YAML file relative to this one, or a list of them, of which later ones win; "
            "whet/NAME.yaml is one of the examples that come with whet"
        )
    for name in names:
        if problem := text_problem(name) or name_problem(name):
            raise UserError(f"{path}: {EXTENDS}: {show(name)} {problem}")
    return names


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
        root = _composed(text)
        if root is not None and root.tag == f"{TAG}null":  # `---` and nothing behind it
            root = None
        if root is not None and not isinstance(root, yaml.MappingNode):
            raise UserError(f"{path}: must hold sections such as data: and worker:")
        tree = OmegaConf.to_container(OmegaConf.create(text), resolve=False) if root is not None else {}
    except UnicodeDecodeError as error:
        raise UserError(f"config={path}: is not a UTF-8 text file; save it as one (encoding UTF-8)") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise UserError(f"{path}{line}: is not YAML: {printable(str(error.problem or error.context))}") from error
    except (OSError, ValueError, yaml.YAMLError, OmegaConfBaseException) as error:
        raise UserError(f"config={path}: cannot be read: {printable(str(error).splitlines()[0])}") from error
    return tree, root


def _composed(text: str) -> yaml.Node | None:
    """The root of a YAML text; what is wrong with it is said in PyYAML's own words, whichever parser is there."""
    try:
        return yaml.compose(text, Loader=LOADER)
    except yaml.YAMLError:
        return yaml.compose(text, Loader=yaml.SafeLoader)


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
