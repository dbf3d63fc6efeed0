"""Answers that a scorer of others passes to `eval` or to sympy's parser: only those that cannot act are let through.

Evaluating a text runs it as Python. What is let through is a literal or short arithmetic: no attributes, no subscripts,
no calls but those of elementary functions, no long names and no numbers whose size would hold up the process.
"""

from __future__ import annotations

import ast
import re

LONGEST = 10_000  # characters of an answer that is evaluated
MOST_BITS = 4096  # of a number on the way to the result
_LONG_EXPONENT = re.compile(r"(?<![\w.])[\d._]+[eE][+-]?\d{5}")  # 1e999999999 as a fraction has a billion digits
_TRIGONOMETRIC = ("sin", "cos", "tan", "sec", "csc", "cot", "asin", "acos", "atan", "sinh", "cosh", "tanh")
_FUNCTIONS = frozenset((*_TRIGONOMETRIC, "exp", "log", "ln", "sqrt", "abs", "Abs", "Integral"))
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.BitAnd, ast.BitOr, ast.BitXor)
_LONGEST_OPERAND = 2  # characters of a name in arithmetic: x, C, pi; longer ones may be texts of the scorer's own


class _ActsError(Exception):
    """The text is more than a literal or short arithmetic."""


def is_short(text: str) -> bool:
    """True if no number in the text is written with an exponent of five digits."""
    return _LONG_EXPONENT.search(text) is None


def is_harmless(text: str) -> bool:
    """True if evaluating the text as Python, or by sympy's parser, runs nothing and ends at once."""
    if len(text) > LONGEST or not is_short(text):
        return False
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError):  # `eval` raises as well; sympy's parser reads 5! all the same
        return "!" not in text
    except (MemoryError, RecursionError):
        return False
    try:
        _check(tree.body)
    except (_ActsError, RecursionError):
        return False
    return True


def _check(node: ast.expr) -> None:
    """Raise `_ActsError` for anything but literals, names and arithmetic."""
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        for element in node.elts:
            _check(element)
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values):
            if key is None:  # **other
                raise _ActsError
            _check(key)
            _check(value)
    elif isinstance(node, ast.Name):
        if "_" in node.id:
            raise _ActsError
    elif not isinstance(node, ast.Constant):
        _size(node)


def _size(node: ast.expr) -> tuple[int, bool]:
    """Return the most bits that the number may have, and True if it holds a symbol."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | complex):
        return (node.value.bit_length() if isinstance(node.value, int) else 64), False
    if isinstance(node, ast.Name) and len(node.id) <= _LONGEST_OPERAND and "_" not in node.id:
        return 1, True
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd | ast.Invert):
        return _size(node.operand)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
        if node.keywords:
            raise _ActsError
        return sum(_size(argument)[0] for argument in node.args), True
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, _OPERATORS):
        raise _ActsError
    (left, left_symbol), (right, right_symbol) = _size(node.left), _size(node.right)
    bits = left + right + 1
    if isinstance(node.op, ast.Pow) and not right_symbol:
        bits = left << min(right, MOST_BITS.bit_length())
    if bits > MOST_BITS:
        raise _ActsError
    return bits, left_symbol or right_symbol
