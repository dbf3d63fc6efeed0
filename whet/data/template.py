"""The prompt template of `data.format_prompt`: a Jinja file that sees every column of the row.

`content` and `prompt` both name the prompt's own text, whatever its column is called. A name that the row does not
have is an error, never an empty string. The environment is sandboxed: a template is data that people share.
"""

from __future__ import annotations

from pathlib import Path

import jinja2
from jinja2.meta import find_undeclared_variables
from jinja2.sandbox import SandboxedEnvironment

from whet.config import nearest
from whet.data.formats import Columns
from whet.errors import UserError

PROMPT_NAMES = ("content", "prompt")


class PromptTemplate:
    """A compiled template file."""

    def __init__(self, path: Path, key: str = "data.format_prompt") -> None:
        self.path = path
        self.key = key
        environment = SandboxedEnvironment(undefined=jinja2.StrictUndefined, autoescape=False)
        source = self._read().strip()
        try:
            self._names = find_undeclared_variables(environment.parse(source))
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise UserError(f"{key}: {path}:{error.lineno}: {error.message}.") from error

    def render(self, text: str, row: Columns, uid: str) -> str:
        """The prompt's text as the template puts it; `uid` names the row in errors."""
        context = row | dict.fromkeys(PROMPT_NAMES, text)
        try:
            return self._template.render(context)
        except jinja2.UndefinedError as error:
            raise UserError(self._undefined(error, context, uid)) from error
        except Exception as error:  # a template is the user's code: whatever it raises is about the template
            raise UserError(f"{self.key}: {self.path} failed on {uid}: {error}.") from error

    def _undefined(self, error: jinja2.UndefinedError, context: Columns, uid: str) -> str:
        unknown = sorted(self._names - context.keys())
        guess = nearest(unknown[0], context) if unknown else None
        hint = f" Did you mean {guess}?" if guess else ""
        names = ", ".join(sorted(context))
        return f"{self.key}: {self.path} on {uid}: {error.message}. Names there are: {names}.{hint}"

    def _read(self) -> str:
        try:
            return self.path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise UserError(f"{self.key}: {self.path} is not UTF-8 text.") from error
        except OSError as error:
            raise UserError(f"{self.key}: the template {self.path} cannot be read ({error.strerror}).") from error
