"""The layer that `key=value` arguments of the command line give."""

from __future__ import annotations

import os
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from whet.config.loading.layer import Layer, is_section, key_of, mapping_above, record, record_tree
from whet.config.loading.yaml_file import check_yaml
from whet.config.problems import did_you_mean
from whet.config.schema import all_keys, all_presets
from whet.config.secrets import masked
from whet.config.values import NULL_WORDS, Given, show
from whet.errors import UserError

MODEL = "worker.actor.model.model_path"


def read_arguments(arguments: list[str]) -> Layer:
    """Return the layer that `key=value` arguments give; a later argument wins over an earlier one of the same name."""
    layer = Layer()
    for argument in _joined(arguments, layer):
        name = argument.partition("=")[0].strip(" -+~")
        try:
            name, text = split_argument(argument)
            section = is_section(name)
            value = _section_value(name, text) if section else _argument_value(name, text)
        except UserError as error:
            from whet.config.loading.wrong_names import close_key

            is_known = key_of(name) in all_keys() or is_section(name)
            layer.refuse(error, name if is_known else close_key(name), guessed=not is_known)
            continue
        if section:
            record_tree(name, value, lambda name: "", layer)
        else:
            record(Given(name, value), layer)
    return layer


def _joined(arguments: list[str], layer: Layer) -> list[str]:
    """Return the arguments without those that spell `key = value` with spaces, each of which becomes one problem."""
    found, rest = [], list(arguments)
    while rest:
        words = [rest.pop(0)]
        count = _words_after(words[0], rest)
        words, rest = words + rest[:count], rest[count:]
        if count == 0:
            found += words
            continue
        name, _, text = "".join(words).partition("=")
        shown = f"{show(name)}={show(masked(text, name))}"
        layer.refuse(UserError(f"{show(words[0])} ...: leave out the spaces around the = and write {shown}"), name)
    return found


def _words_after(word: str, rest: list[str]) -> int:
    """Return how many of the following arguments belong to a known key that is written as `key = value`."""
    if not rest or "=" in word[:-1] or key_of(word.removesuffix("=")) not in all_keys():
        return 0
    if word.endswith("="):
        return int("=" not in rest[0])
    return 2 if rest[0] == "=" else int(rest[0].startswith("="))


def is_config_file(argument: str) -> bool:
    """Return True for an argument that names a YAML file, as `whet train my.yaml` does."""
    return argument.endswith((".yaml", ".yml")) and ("=" not in argument or os.path.isfile(argument))


def split_argument(argument: str) -> tuple[str, str]:
    """Return the name and the text of one `key=value` argument."""
    name, equals, text = argument.partition("=")
    bare = name.lstrip("-+~")
    if not equals and key_of(bare) in all_keys():
        wanted = "leave the key out to have its default" if name[:1] == "~" else "expected key=value"
        raise UserError(f"{show(argument)}: {wanted}")
    if not equals and argument.endswith((".jsonl", ".json", ".csv", ".parquet")):
        raise UserError(f"{show(argument)}: expected key=value; a data file is data.train_files={show(argument)}")
    if not equals and (os.path.isfile(os.path.join(argument, "config.json")) or argument.startswith("whet/")):
        raise UserError(f"{show(argument)}: expected key=value; a model is {MODEL}={show(argument)}")
    if not equals:
        from whet.config.loading.wrong_names import close_key

        raise UserError(f"{show(argument)}: expected key=value{did_you_mean(close_key(bare))}")
    if bare != name:
        shown = show(masked(text, bare))
        raise UserError(
            f"{show(name)}={shown}: leave out the {name[: len(name) - len(bare)]} and write {show(bare)}={shown}"
        )
    if not name or name != name.strip():
        shown = show(masked(text, name.strip()))
        raise UserError(f"{show(name)}={shown}: expected key=value without spaces round the =")
    return name, text


def _section_value(name: str, text: str) -> Any:
    if not text.strip() or (text in NULL_WORDS and name not in all_presets()):
        from whet.config.loading.wrong_names import section_error

        raise section_error(Given(name, text))
    return _yaml_value(name, text)


def _argument_value(name: str, text: str) -> Any:
    target = key_of(name)
    key = all_keys().get(target)
    if key is None and mapping_above(target) is None:
        from whet.config.loading.wrong_names import wrong_name

        raise wrong_name(Given(name, text))
    if not text.strip():
        raise UserError(f"{name}=: has no value; expected {key.expected if key else 'one'}")
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    # A scalar is taken as written: YAML would read 007 as 7 and `no` as false.
    if key is None or key.kind in ("list", "numbers", "table", "pair", "dict") or quoted:
        return _yaml_value(name, text)
    return None if text in NULL_WORDS else text


def _yaml_value(name: str, text: str) -> Any:
    check_yaml(text, f"{name}={show(text)}")
    try:
        read = OmegaConf.from_dotlist([f"value={text}"])
    except (yaml.YAMLError, OmegaConfBaseException, ValueError) as error:
        shown = show(masked(text, name))
        raise UserError(f"{name}={shown}: cannot be read as YAML; check its brackets and quotes") from error
    tree: Any = OmegaConf.to_container(read, resolve=False)
    value = tree["value"]
    if value is None and text not in NULL_WORDS:
        raise UserError(f"{name}={show(masked(text, name))}: reads as nothing in YAML; put it in quotes")
    return value
