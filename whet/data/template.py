"""The prompt template of `data.format_prompt`: a Jinja file that sees every column of the row.

`content` and `prompt` both name the prompt's own text, whatever its column is called. A name that the row does not
have is an error, never an empty string. The environment is sandboxed: a template is data that people share.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.filters import do_format
from jinja2.meta import find_undeclared_variables
from jinja2.parser import Parser
from jinja2.sandbox import SandboxedEnvironment, SecurityError

from whet.config import nearest
from whet.data.formats import Columns
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
        if not source:
            raise UserError(f"{key}: {path} is empty. Write {{{{ content }}}} where the row's own text belongs.")
        try:
            self.names = find_undeclared_variables(environment.parse(source))
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
        unknown = sorted(self.names - context.keys())
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


MOST_CHARACTERS = 10_000_000  # of one text or list that an operation makes
MOST_BITS = 20_000  # of an integer
WIDE = re.compile(r"\d{7,}|\*")  # a width in a format
WIDE_FORMAT = re.compile(r"%[-+ #0]*\d{7,}|\{[^{}]*:[^{}]*\d{7,}")


class PromptEnvironment(SandboxedEnvironment):
    """A sandbox in which names that are not there are errors, and large results are refused."""

    intercepted_binops = frozenset(("*", "**", "%"))

    def __init__(self) -> None:
        super().__init__(undefined=jinja2.StrictUndefined, autoescape=False)
        self.filters = {name: _guarded(function) for name, function in self.filters.items()}

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Evaluate an operator as Jinja does, if the result stays small."""
        if operator == "%" and isinstance(left, str):
            _check_format(left)
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            _check(left.bit_length() * abs(right) <= MOST_BITS)
        elif operator == "*":
            if isinstance(left, int) and isinstance(right, int):
                _check(left.bit_length() + right.bit_length() <= MOST_BITS)
            for count, of in ((left, right), (right, left)):
                if isinstance(count, int) and isinstance(of, str | bytes | list | tuple):
                    _check(count * len(of) <= MOST_CHARACTERS)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Any, callee: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a function as Jinja does, with bounded counts."""
        _check_counts(args, kwargs)
        if getattr(callee, "__name__", "") in ("format", "format_map"):
            _check_format(str(getattr(getattr(callee, "__wrapped__", callee), "__self__", "")))
        if getattr(callee, "__name__", "") in ("replace", "join"):
            sizes = [len(each) for each in (callee.__self__, *args) if hasattr(each, "__len__")]
            _check(math.prod(max(1, size) for size in sizes) <= 100 * MOST_CHARACTERS)
        return super().call(context, callee, *args, **kwargs)


def check_chat_template(source: str) -> None:
    """Raise a `SecurityError` for a chat template that computes with powers or enormous numbers.

    Its own environment is transformers', whose sandbox lets both pass. Errors of syntax are left to rendering.
    """
    try:
        tree = jinja2.Environment(extensions=[_Generation, "jinja2.ext.loopcontrols"]).parse(source)
    except (jinja2.TemplateSyntaxError, RecursionError, ValueError):
        return
    _check(tree.find(nodes.Pow) is None)
    numbers = [each.value for each in tree.find_all(nodes.Const) if isinstance(each.value, int)]
    _check(all(abs(number) <= 10 * MOST_CHARACTERS for number in numbers))
    texts = [each.value for each in tree.find_all(nodes.Const) if isinstance(each.value, str)]
    _check(not any(WIDE_FORMAT.search(text) for text in texts))
    for product in tree.find_all(nodes.Mul):
        factors = [each.value for each in product.find_all(nodes.Const) if isinstance(each.value, int)]
        _check(math.prod(factors) <= MOST_CHARACTERS)


def check_text(text: str) -> str:
    """The text, if it can be tokenized; a template may write half of a character by an escape."""
    if not text.isascii():
        text.encode("utf-8")  # UnicodeEncodeError is a ValueError that says where
    return text


class _Generation(Extension):
    """Read the {% generation %} blocks of chat templates."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that refuses enormous counts; what Jinja wants to pass to it stays marked on it."""

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        _check_counts(args[1:], kwargs)  # the first is the value, or Jinja's own
        if function is do_format:
            _check_format(str(args[0]))
        return function(*args, **kwargs)

    return guarded


def _check_counts(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for value in (*args, *kwargs.values()):
        _check(not isinstance(value, int) or abs(value) <= MOST_CHARACTERS)


def _check_format(text: str) -> None:
    _check(WIDE.search(text) is None or ("%" not in text and "{" not in text))


def _check(is_small: bool) -> None:
    if not is_small:
        raise SecurityError("an operation in it makes something too large")


class TooLongError(BaseException):
    """Rendering took longer than allowed; no `except Exception` of a template's own engine catches it."""


class TimeLimit:
    """Context that ends with `TooLongError` after `seconds`; entering it costs a microsecond, in any thread."""

    _lock = threading.Lock()
    _entered: ClassVar[set[TimeLimit]] = set()
    _wake = threading.Event()
    _watcher: threading.Thread | None = None

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._deadline = 0.0
        self._thread = 0
        self._is_over = False

    def __enter__(self) -> None:
        self._thread = threading.get_ident()
        self._deadline = time.monotonic() + self._seconds
        with self._lock:
            self._entered.add(self)
            # A forked child has the object but not the thread.
            if TimeLimit._watcher is None or not TimeLimit._watcher.is_alive():
                TimeLimit._watcher = threading.Thread(target=_watch, name="whet-time-limit", daemon=True)
                TimeLimit._watcher.start()
        self._wake.set()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._entered.discard(self)
        if self._is_over and kind is not TooLongError:  # it is still on its way to this thread
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), None)
            raise TooLongError

    @classmethod
    def stop_late(cls) -> bool:
        """Raise in every thread whose time is over; False if nothing is left to watch."""
        now = time.monotonic()
        with cls._lock:
            for each in list(cls._entered):
                if each._deadline < now:
                    each._is_over = True
                    cls._entered.discard(each)
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(each._thread), ctypes.py_object(TooLongError)
                    )
            return bool(cls._entered)


def _watch() -> None:
    while True:
        if not TimeLimit.stop_late():
            TimeLimit._wake.clear()
            if not TimeLimit.stop_late():  # nobody came between the two
                TimeLimit._wake.wait()
        time.sleep(0.2)
