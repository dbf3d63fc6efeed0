"""The Jinja environment of prompt templates: no internals, no files, and nothing that takes for ever or all memory.

Templates are data that people share. Jinja's sandbox keeps them from Python's internals; sums here keep single
operations small, which a limit on time cannot interrupt.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.filters import do_format
from jinja2.parser import Parser
from jinja2.sandbox import SandboxedEnvironment, SecurityError

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
