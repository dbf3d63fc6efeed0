"""What the user gave, one flat layer per source: a YAML file, or the arguments of the command line.

A layer maps each real key (and each name below a key that is a mapping) to the value given for it. Aliases are followed
here and wrong names end here; the types of values are not looked at yet, because a value may be an interpolation.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from whet.config.aliases import ALIASES
from whet.config.keys import Key
from whet.config.replaced import REPLACED, reason_not_settable
from whet.config.schema import all_keys, all_sections
from whet.config.spelling import did_you_mean, hint, nearest_key
from whet.config.values import NULL_WORDS, Given, show
from whet.errors import UserError

Layer = dict[str, Given]


def read_file(path: Path) -> Layer:
    """The layer that a YAML file gives."""
    if not os.path.isfile(path):
        siblings = [str(path.parent / each.name) for each in path.parent.glob("*.y*ml")]
        raise UserError(f"config={path}: there is no such file{hint(str(path), siblings)}")
    try:
        text = path.read_text(encoding="utf-8")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        tree = OmegaConf.to_container(OmegaConf.create(text) if text.strip() else OmegaConf.create(), resolve=False)
    except UnicodeDecodeError as error:
        raise UserError(f"config={path}: is not a UTF-8 text file") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise UserError(f"{path}{line}: is not YAML: {error.problem or error.context}") from error
    except (OSError, yaml.YAMLError, OmegaConfBaseException) as error:
        raise UserError(f"config={path}: cannot be read: {str(error).splitlines()[0]}") from error
    if not isinstance(tree, dict) or (root is not None and not isinstance(root, yaml.MappingNode)):
        raise UserError(f"{path}: must hold sections such as data: and worker:, not {show(tree)}")
    layer: Layer = {}
    nodes = _nodes(root, "") if root is not None else {}
    _flatten("", tree, functools.partial(_place_in_file, path, nodes), layer)
    for given in layer.values():
        node = nodes.get(given.name)
        if given.value is None and node is not None and node.value == "":
            raise UserError(f"{given.name}{given.place}: has no value; write null for none, or leave the key out")
    return layer


def read_arguments(arguments: list[str]) -> Layer:
    """The layer that `key=value` arguments give; a later argument wins over an earlier one of the same name."""
    layer: Layer = {}
    for argument in arguments:
        name, text = split_argument(argument)
        if name in _section_names():
            _flatten(name, _yaml_value(name, text), lambda name: "", layer)
        else:
            _record(Given(name, _argument_value(name, text)), layer)
    return layer


def split_argument(argument: str) -> tuple[str, str]:
    """The name and the text of one `key=value` argument."""
    name, equals, text = argument.partition("=")
    bare = name.lstrip("-+~")
    if not equals:
        raise UserError(f"{argument}: expected key=value{did_you_mean(nearest_key(bare, [*all_keys(), 'config']))}")
    if bare != name:
        raise UserError(f"{argument}: leave out the {name[: len(name) - len(bare)]} and write {bare}={text}")
    if not name or name != name.strip():
        raise UserError(f"{argument}: expected key=value without spaces round the =")
    return name, text


def _argument_value(name: str, text: str) -> Any:
    key = all_keys().get(ALIASES.get(name, name))
    if key is None and _dict_key_above(ALIASES.get(name, name)) is None:
        raise _wrong_name(Given(name, text))
    if not text.strip():
        raise UserError(f"{name}=: has no value; expected {key.expected if key else 'one'}")
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    # A scalar is taken as written: YAML would read 007 as 7 and `no` as false.
    if key is None or key.kind in ("list", "pair", "dict") or quoted:
        return _yaml_value(name, text)
    return None if text in NULL_WORDS else text


def _yaml_value(name: str, text: str) -> Any:
    try:
        read = OmegaConf.from_dotlist([f"value={text}"])
    except yaml.YAMLError as error:
        raise UserError(f"{name}={text}: cannot be read as YAML; check its brackets and quotes") from error
    tree: Any = OmegaConf.to_container(read, resolve=False)
    value = tree["value"]
    if value is None and text not in NULL_WORDS:
        raise UserError(f"{name}={text}: reads as nothing in YAML; put it in quotes")
    return value


def _flatten(name: str, value: Any, place_of: Callable[[str], str], layer: Layer) -> None:
    if name and name not in _section_names():
        _record(Given(name, value, place_of(name)), layer)
        return
    if value is None:
        return
    if not isinstance(value, dict):
        example = next(known for known in [*all_keys(), *ALIASES] if known.startswith(f"{name}."))
        raise Given(name, value, place_of(name)).error(f"is a section; give its keys, such as {example}")
    for child, item in value.items():
        _flatten(f"{name}.{child}" if name else str(child), item, place_of, layer)


def _record(given: Given, layer: Layer) -> None:
    target = ALIASES.get(given.name, given.name)
    key = all_keys().get(target)
    if key is None and _dict_key_above(target) is None:
        raise _wrong_name(given)
    if key is not None and key.kind == "dict":
        if not isinstance(given.value, dict):
            raise given.error(f"expected {key.expected}")
        for child, item in given.value.items():
            _put(f"{target}.{child}", Given(f"{given.name}.{child}", item, given.place), layer)
    else:
        _put(target, given, layer)


def _wrong_name(given: Given) -> UserError:
    reason = reason_not_settable(given.name)
    if reason:
        return UserError(f"{given.name}{given.place} {reason}")
    above = given.name.rpartition(".")[0]
    while above and above not in _section_names():
        if above in all_keys():
            return UserError(f"{given.name}{given.place}: {above} is a single value and has no keys below it")
        above = above.rpartition(".")[0]
    root = given.name.partition(".")[0]
    is_foreign = root in _section_names() and root not in all_sections()
    aliases = [name for name in ALIASES if name.partition(".")[0] in all_sections()]
    close = did_you_mean(nearest_key(given.name, ALIASES if is_foreign else [*all_keys(), *aliases, "config"]))
    return UserError(f"unknown key {given.name}{given.place}{close or '; `whet config` lists every key'}")


def _put(target: str, given: Given, layer: Layer) -> None:
    earlier = layer.get(target)
    is_repeated_argument = earlier is not None and earlier.name == given.name and not given.place
    if earlier is not None and not is_repeated_argument and show(earlier.value) != show(given.value):
        raise UserError(
            f"{earlier.name}={show(earlier.value)}{earlier.place} and {given.name}={show(given.value)}{given.place} "
            f"both set {target}; keep one"
        )
    if given.value == "???":
        raise given.error("still has to be filled in")
    try:
        OmegaConf.create([given.value])
    except OmegaConfBaseException as error:
        raise given.error(f"cannot be read: {str(error).splitlines()[0]}") from error
    layer[target] = given


def _dict_key_above(name: str) -> Key | None:
    parts = name.split(".")
    above = (all_keys().get(".".join(parts[:length])) for length in range(len(parts) - 1, 0, -1))
    return next((key for key in above if key is not None and key.kind == "dict"), None)


@functools.cache
def _section_names() -> set[str]:
    foreign = {name for name in (*ALIASES, *REPLACED) if name not in all_keys()}
    parts = [name.split(".") for name in foreign]
    prefixes = {".".join(part[:length]) for part in parts for length in range(1, len(part))}
    return (set(all_sections()) | prefixes) - set(ALIASES) - set(all_keys())


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
