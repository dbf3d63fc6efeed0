"""The prompt template of `data.format_prompt`: a Jinja file that sees every column of the row.

`content` and `prompt` both name the prompt's own text, whatever its column is called. A name that the row does not
have is an error, never an empty string. The environment is sandboxed: a template is data that people share.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import jinja2
from jinja2.meta import find_undeclared_variables

from whet.config import nearest
from whet.data.formats import Columns
from whet.data.sandbox import MOST_CHARACTERS, PromptEnvironment, check_text
from whet.data.time_limit import TimeLimit, TooLongError
from whet.errors import UserError

LONGEST = 3.0  # seconds for one row; templates take microseconds
PROMPT_NAMES = ("content", "prompt")


class PromptTemplate:
    """A compiled template file."""

    def __init__(self, path: Path, key: str = "data.format_prompt") -> None:
        self.path = path
        self.key = key
        environment = PromptEnvironment()
        source = self._read().strip()
        try:
            self._names = find_undeclared_variables(environment.parse(source))
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise UserError(f"{key}: {path}:{error.lineno}: {error.message}.") from error
        except (jinja2.TemplateError, RecursionError, ValueError, SyntaxError, MemoryError) as error:
            raise UserError(
                f"{key}: {path} cannot be compiled: {str(error)[:200] or 'it nests too deeply'}."
            ) from error

    def render(self, text: str, row: Columns, uid: str) -> str:
        """The prompt's text as the template puts it; `uid` names the row in errors."""
        context = row | dict.fromkeys(PROMPT_NAMES, text)
        try:
            with TimeLimit(LONGEST):
                return _limited(self._template.generate(context))
        except TooLongError as error:
            raise UserError(f"{self.key}: {self.path} on {uid}: takes longer than {LONGEST:g} seconds.") from error
        except jinja2.UndefinedError as error:
            raise UserError(self._undefined(error, context, uid)) from error
        except Exception as error:  # a template is the user's code: whatever it raises is about the template
            raise UserError(f"{self.key}: {self.path} failed on {uid}: {str(error)[:500]}.") from error

    def _undefined(self, error: jinja2.UndefinedError, context: Columns, uid: str) -> str:
        unknown = sorted(self._names - context.keys())
        guess = nearest(unknown[0], context) if unknown else None
        hint = f" Did you mean {guess}?" if guess else ""
        names = ", ".join(sorted(context))
        return f"{self.key}: {self.path} on {uid}: {error.message}. Names there are: {names}.{hint}"

    def _read(self) -> str:
        try:
            if os.path.exists(self.path) and not os.path.isfile(self.path):  # reading a pipe or a device may never end
                raise UserError(f"{self.key}: {self.path} is no ordinary file.")
            with self.path.open("rb") as file:
                return file.read(MOST_CHARACTERS).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise UserError(f"{self.key}: {self.path} is not UTF-8 text.") from error
        except OSError as error:
            raise UserError(f"{self.key}: the template {self.path} cannot be read ({error.strerror}).") from error


def _limited(pieces: Iterator[str]) -> str:
    """The pieces as one text, which may not be endless."""
    written, size = [], 0
    for piece in pieces:
        written.append(piece)
        size += len(piece)
        if size > MOST_CHARACTERS:
            raise ValueError(f"it writes more than {MOST_CHARACTERS:,} characters")
    return check_text("".join(written))
