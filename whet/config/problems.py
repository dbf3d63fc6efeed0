"""Problems of a config, collected so that a user sees all of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from whet.errors import UserError

MOST_SHOWN = 30


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
