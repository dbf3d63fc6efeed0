"""Values that one source gives, by real key: aliases are resolved and wrong names refused here.

The types of values are not looked at yet, because a value may be an interpolation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from whet.config.keys import Key
from whet.config.problems import Problem, sentences_of
from whet.config.schema import all_keys, all_presets, all_sections
from whet.config.values import Given, read_value, show
from whet.errors import UserError

COMMAS = ("data.train_files", "data.val_files")  # which name several files in one text
SEED = "trainer.seed"
SEEDS = ("data.seed", "worker.rollout.seed")  # the shuffle and the first values of adapters; sampling


class Layer(dict[str, Given]):
    """The value given for each real key or name below a mapping, and what was wrong with other names and values."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[Problem] = []

    def refuse(self, error: UserError, name: str | None = None, guessed: bool = False) -> None:
        """Note an error; `name` is the key or section it concerns, or a key close to it, whose value is unknown."""
        target = key_of(name) if name else ""
        parts = target.split(".")
        above = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
        keys = [key for key in above if key in all_keys()][:1]
        if target in all_sections():
            keys = [key for key in all_keys() if key.startswith(f"{target}.")]
        self.problems += [Problem(sentence, tuple(keys), guessed) for sentence in sentences_of(error)]


def record_tree(name: str, value: Any, place_of: Callable[[str], str], layer: Layer) -> None:
    """Record everything that a tree of sections gives; an empty section gives nothing.

    Whatever is wrong becomes a problem of the layer, here and in `record`.
    """
    if name and not is_section(name):
        record(Given(name, value, place_of(name)), layer)
        return
    if name in all_presets() and not isinstance(value, dict):
        record(Given(f"{name}.preset", value, place_of(name)), layer)
        return
    if value is None:
        return
    if not isinstance(value, dict):
        from whet.config.loading.wrong_names import section_error

        layer.refuse(section_error(Given(name, value, place_of(name))), name)
        return
    for child, item in value.items():
        record_tree(f"{name}.{child}" if name else str(child), item, place_of, layer)


def record(given: Given, layer: Layer) -> None:
    """Record the value given under a name that is a key, an alias, or below a key that is a mapping."""
    target = key_of(given.name)
    key = all_keys().get(target)
    if key is None and mapping_above(target) is None:
        from whet.config.loading.wrong_names import close_key, wrong_name

        layer.refuse(wrong_name(given), close_key(given.name), guessed=True)
    elif key is not None and not _may_hold(key, given.value):
        advice = "; write them in one text, with commas between" if target in COMMAS else ""
        layer.refuse(given.error(f"expected {key.expected}{advice}"), target)
    elif key is not None and key.kind == "dict":
        for child, item in given.value.items():
            _put(f"{target}.{child}", Given(f"{given.name}.{child}", item, given.place), layer)
    else:
        _put(target, given, layer)


def _may_hold(key: Key, value: Any) -> bool:
    """Return False for a collection of a kind that the key has no use for."""
    if key.kind == "dict" or isinstance(value, dict):
        return key.kind == "dict" and isinstance(value, dict)
    return not isinstance(value, list) or key.kind in ("list", "numbers", "table", "pair")


def fill_presets(layer: Layer) -> None:
    """Fill the keys of a section from the preset that a source names, unless the source gives them itself.

    A source that comes later and names another preset so replaces the earlier one as a whole.
    """
    for section, presets in all_presets().items():
        given = layer.get(f"{section}.preset")
        if given is None or (given.value is not None and given.value not in list(presets)):
            continue  # an unknown name is refused with the other values
        values = presets[given.value] if given.value is not None else {}
        for name, key in all_keys().items():
            if name.rpartition(".")[0] == section:
                leaf = name.rpartition(".")[2]
                layer.setdefault(name, Given(name, values.get(leaf, key.default), given.place))


def fill_seeds(layer: Layer) -> None:
    """Where a source gives `trainer.seed`, give every other seed that the source does not give itself.

    A seed on the command line so replaces those of a file.
    """
    given = layer.get(SEED)
    if given is None or given.value is None or not _may_be_seed(given):
        return  # what is no seed is refused once, for the key that it was given for
    for name in SEEDS:
        layer.setdefault(name, Given(SEED, given.value, given.place))


def _may_be_seed(given: Given) -> bool:
    if "${" in str(given.value):
        return True
    try:
        read_value(all_keys()[SEED], given)
    except UserError:
        return False
    return True


def _put(target: str, given: Given, layer: Layer) -> None:
    try:
        _check_put(target, given, layer)
    except UserError as error:
        layer.refuse(error, target)
    else:
        layer[target] = given


def _check_put(target: str, given: Given, layer: Layer) -> None:
    earlier = layer.get(target)
    is_repeated_argument = earlier is not None and earlier.name == given.name and not given.place
    if earlier is not None and not is_repeated_argument and show(earlier.value) != show(given.value):
        raise UserError(
            f"{earlier.name}={earlier.shown}{earlier.place} and {given.name}={given.shown}{given.place} "
            f"both set {target}; keep one"
        )
    if given.value == "???":
        raise given.error("still has to be filled in")
    if is_plain(given.value):
        return
    from whet.config.loading.interpolation import check_interpolations

    check_interpolations(given)


def is_plain(value: Any) -> bool:
    """True for a value that OmegaConf would give back as it is: no interpolation, no type of its own."""
    if type(value) is str:
        return "${" not in value
    if type(value) is list:
        return all(map(is_plain, value))
    if type(value) is dict:
        return all(type(name) is str and is_plain(item) for name, item in value.items())
    return value is None or type(value) in (int, float, bool)


def mapping_above(name: str) -> Key | None:
    """The key that is a mapping and holds this name, if there is one."""
    parts = name.split(".")
    above = (all_keys().get(".".join(parts[:length])) for length in range(len(parts) - 1, 0, -1))
    return next((key for key in above if key is not None and key.kind == "dict"), None)


def key_of(name: str) -> str:
    """Return the key that a name stands for: its own, or the one that a name of verl's is an alias of."""
    if name in all_keys():
        return name
    from whet.config.loading.aliases import ALIASES

    return ALIASES.get(name, name)


def is_section(name: str) -> bool:
    """True for a section, one of verl's included."""
    return name in all_sections() or (name not in all_keys() and name in foreign_sections())


@functools.cache
def foreign_sections() -> set[str]:
    """Sections that only verl has."""
    from whet.config.loading.aliases import ALIASES
    from whet.config.loading.replaced import REPLACED

    parts = [name.split(".") for name in (*ALIASES, *REPLACED)]
    prefixes = {".".join(part[:length]) for part in parts for length in range(1, len(part))}
    return prefixes - set(ALIASES) - set(all_keys()) - set(all_sections())
