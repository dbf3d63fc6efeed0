"""Problems of a config, collected so that a user sees all of them at once, and the nearest known names for advice."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from whet.errors import UserError

_SAME_LEAF = 0.4
LONGEST = 200  # characters of a name that others are compared with: time grows with its square
MOST_SHOWN = 30
_SYNONYMS = {"gpu": "cuda"}  # another word for a name, where the most similar name means something else


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The most similar of `names`, whatever the case of letters, or None when nothing is close."""
    if len(name) > LONGEST:
        return None
    folded = {known.lower(): known for known in names}
    name = _SYNONYMS.get(name.lower(), name)
    found = difflib.get_close_matches(name.lower(), folded, n=1)
    return folded[found[0]] if found else None


def nearest_key(name: str, names: Iterable[str]) -> str | None:
    """Return the dotted name with the same last part that is most similar, or else the most similar name.

    A name below a section that does not exist must be somewhat similar as a whole, too. A name without a section means
    the policy's key before others.
    """
    if len(name) > LONGEST:
        return None
    names = list(names)
    leaf = name.lower().rpartition(".")[2]
    same_leaf = [known for known in names if known.rpartition(".")[2] == leaf]
    if "." not in name:
        same_leaf = [known for known in same_leaf if known.startswith("worker.actor.")] or same_leaf
    is_placed = "." not in name or name.partition(".")[0] in {known.partition(".")[0] for known in names}
    by_similarity = difflib.get_close_matches(name.lower(), same_leaf, n=1, cutoff=0.0 if is_placed else _SAME_LEAF)
    if by_similarity:
        return by_similarity[0]
    found = nearest(name, names)
    if found is None or "." not in name:
        return found
    # Sections in common make any two keys similar; their last parts must be, too.
    alike = difflib.SequenceMatcher(None, leaf, found.rpartition(".")[2]).ratio()
    return found if alike >= _SAME_LEAF or len(leaf) < 3 else None


def did_you_mean(found: str | None) -> str:
    """`; did you mean X?`, or nothing when no name was found."""
    return f"; did you mean {found}?" if found else ""


def hint(name: str, names: Iterable[str]) -> str:
    """`; did you mean X?` with the most similar of `names`, or nothing when none is close."""
    return did_you_mean(nearest(name, names))


@dataclass(frozen=True)
class Problem:
    """A sentence about something that was given, and what is not known of the config because of it."""

    sentence: str
    keys: tuple[str, ...] = ()  # whose value was meant to be another one
    guessed: bool = False  # from an unknown name
    hides_all: bool = False  # a whole source could not be read


class ConfigError(UserError):
    """Every problem of a config: one is its sentence, several are numbered and the first `MOST_SHOWN` of them shown."""

    def __init__(self, sentences: Sequence[str], note: str = "") -> None:
        self.sentences = tuple(dict.fromkeys(sentences))
        count = len(self.sentences)
        lines = list(self.sentences)
        if count > 1:
            lines = [f"{count} problems:"]
            lines += [f"  {number}. {sentence}" for number, sentence in enumerate(self.sentences[:MOST_SHOWN], start=1)]
        if count > MOST_SHOWN:
            lines.append(f"  and {count - MOST_SHOWN} more")
        super().__init__("\n".join([*lines, note] if note else lines))


def raise_problems(sentences: Iterable[str], note: str = "") -> None:
    """Raise a `ConfigError` with every sentence once, in their order, and a note at the end; nothing without any."""
    found = list(sentences)
    if found:
        raise ConfigError(found, note)


def sentences_of(error: UserError) -> tuple[str, ...]:
    """Return the sentences that an error was made of."""
    return error.sentences if isinstance(error, ConfigError) else (str(error),)
