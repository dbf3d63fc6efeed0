"""The combinations of a sweep, from `key=a,b,c` and `key=0..2` arguments."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

from whet.config.keys import Key
from whet.config.loading.aliases import ALIASES
from whet.config.loading.arguments import is_config_file, split_argument
from whet.config.problems import hint
from whet.config.schema import all_keys
from whet.config.texts import printable
from whet.errors import UserError

SHORT = {"lr": "worker.actor.optim.lr", "seed": "trainer.seed", "n": "worker.rollout.n"}
MOST_RUNS = 1000
_RANGE = re.compile(r"(-?\d{1,9})\.\.(-?\d{1,9})")
_WITH_COMMAS = ("data.train_files", "data.val_files")  # whose values are lists by themselves
_OPEN, _CLOSE = "[{(", "]})"


@dataclass(frozen=True, slots=True)
class Combination:
    """One run of a sweep: its name, which is that of its folder, and the arguments that set it apart."""

    name: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """Arguments that all runs share, and the combinations of those with several values."""

    shared: tuple[str, ...]
    combinations: tuple[Combination, ...]


def read_grid(arguments: list[str]) -> Grid:
    """Return the runs that arguments spell, or raise a `UserError`."""
    shared: list[str] = []
    swept: dict[str, list[str]] = {}
    for argument in arguments:
        if argument.startswith("config=") or is_config_file(argument):
            shared.append(argument)
            continue
        name, text = split_argument(argument)
        key = full_key(name)
        values = [text] if key in _WITH_COMMAS else values_of(text, f"{name}={text}")
        if key in swept or any(each.startswith(f"{key}=") for each in shared):
            raise UserError(f"{name}: is given twice; give all its values at once, as in {name}=1,2")
        if len(values) == 1:
            shared.append(f"{key}={values[0]}")
        else:
            swept[key] = values
    if not swept:
        raise UserError("a sweep needs a key with several values, as in lr=1e-6,3e-6 or seed=0..2 (whet sweep --help)")
    return Grid(tuple(shared), tuple(_combinations(swept)))


def full_key(name: str) -> str:
    """Return the key that a name means: itself, a short name, or the only key that ends in it."""
    known = all_keys()
    if name in SHORT:
        return SHORT[name]
    if name in known or name in ALIASES or _is_below(name, known):
        return ALIASES.get(name, name)
    ends = [key for key in known if key.endswith(f".{name}")]
    if len(ends) == 1:
        return ends[0]
    if ends:
        raise UserError(f"{name}: is the end of several keys; write one of {', '.join(ends[:6])}")
    near = hint(name, [*known, *SHORT])
    raise UserError(f"{printable(name)[:80]}: there is no such key{near} (whet config lists them)")


def _is_below(name: str, known: dict[str, Key]) -> bool:
    """Return True for a name in a mapping, such as worker.rollout.val_override_config.n."""
    parts = name.split(".")
    return any(".".join(parts[:length]) in known for length in range(1, len(parts)))


def values_of(text: str, shown: str) -> list[str]:
    """Split a text at commas outside brackets and quotes; `0..2` is 0, 1 and 2."""
    found: list[str] = []
    for piece in _split(text):
        matched = _RANGE.fullmatch(piece.strip())
        if matched is None:
            found.append(piece.strip())
            continue
        first, last = int(matched[1]), int(matched[2])
        if not first <= last < first + MOST_RUNS:
            raise UserError(f"{shown}: {piece.strip()} must go up, by less than {MOST_RUNS} values")
        found += map(str, range(first, last + 1))
    if len(found) > 1 and "" in found:
        raise UserError(f"{shown}: has an empty value between commas")
    twice = next((value for value in found if found.count(value) > 1), None)
    if twice is not None:
        raise UserError(f"{shown}: has {twice} twice")
    return found


def _split(text: str) -> list[str]:
    pieces, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in _OPEN:
            depth += 1
        elif letter in _CLOSE:
            depth -= 1
        elif letter == "," and depth <= 0:
            pieces.append("")
            continue
        pieces[-1] += letter
    return pieces


def _combinations(swept: dict[str, list[str]]) -> list[Combination]:
    count = 1
    for values in swept.values():
        count *= len(values)
    if count > MOST_RUNS:
        raise UserError(f"the sweep would be {count} runs; at most {MOST_RUNS} are started")
    lasts = [key.rpartition(".")[2] for key in swept]
    labels = [last if lasts.count(last) == 1 else key for key, last in zip(swept, lasts)]
    found = []
    for chosen in itertools.product(*swept.values()):
        name = ",".join(f"{label}={_for_a_folder(value)}" for label, value in zip(labels, chosen))
        found.append(Combination(name, tuple(f"{key}={value}" for key, value in zip(swept, chosen))))
    names = [each.name for each in found]
    if len(set(names)) < len(names) or max(map(len, names)) > 200:
        found = [Combination(f"run{number:03d}", each.arguments) for number, each in enumerate(found)]
    return found


def _for_a_folder(value: str) -> str:
    """Return a value with what has no place in the name of a folder replaced."""
    return re.sub(r"[^\w.+\-=\[\]]+", "_", value.strip("\"'"))
