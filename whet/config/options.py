"""Options of a command: words that begin with --, apart from files, folders and keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from whet.config.texts import printable
from whet.errors import UserError


@dataclass(frozen=True)
class Options:
    """Arguments of a command, by kind."""

    values: dict[str, list[str]] = field(default_factory=dict)  # all that were given, in their order
    switches: set[str] = field(default_factory=set)
    words: list[str] = field(default_factory=list)  # that are no options

    def last(self, name: str, default: str = "") -> str:
        """Return the last value of an option."""
        return self.values.get(name, [default])[-1]


def read_options(
    command: str, arguments: Sequence[str], values: Sequence[str] = (), switches: Sequence[str] = ()
) -> Options:
    """Divide arguments into values, switches and words; a `UserError` for an option that the command does not have."""
    found, left = Options(), list(arguments)
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if name in values:
            if not equals and not left:
                raise UserError(f"whet {command}: {name} needs a value")
            found.values.setdefault(name, []).append(value if equals else left.pop(0))
        elif word in switches:
            found.switches.add(word)
        elif word.startswith("-"):
            page = command.partition(" ")[0]
            raise UserError(f"whet {command} has no option {printable(word)[:80]} (whet {page} --help)")
        else:
            found.words.append(word)
    return found
