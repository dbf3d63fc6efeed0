r"""prime_math's second comparison: texts, numbers within 1e-4, intervals and lists part by part, \pi as 3.14.

Only for `match`. The original evaluates text with \pi in it as Python; here numbers alone are evaluated.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from typing import Any


def prime_equal(given: str, truth: str) -> bool:
    r"""prime_math's second comparison; with \pi in one of the texts, either of two values of it suffices."""
    try:
        if "\\pi" in given or "\\pi" in truth:
            both = [_prime_equal(given, truth, pi) for pi in (math.pi, 3.14)]  # an error in either is a wrong answer
            return any(both)
        return _prime_equal(given, truth, math.pi)
    except Exception:  # the original takes every error for a wrong answer
        return False


def _prime_equal(given: Any, truth: Any, pi: float) -> bool:
    given, truth = _prime_form(given, pi), _prime_form(truth, pi)
    if isinstance(given, str) and len(given) > 1000:
        given = given[:1000]
    if isinstance(given, str) and isinstance(truth, str) and _same_text(given, truth):
        return True
    ours, theirs = _prime_number(given), _prime_number(truth)
    if ours is not None and theirs is not None:
        return any(math.isclose(value, ours, rel_tol=1e-4) for value in (theirs / 100, theirs, theirs * 100))
    if not given and given not in (0, False):
        return False
    return _same_brackets(_spelled_interval(str(given).strip()), str(truth).strip())


def _same_text(given: str, truth: str) -> bool:
    return given.strip().lower() == truth.strip().lower() or given.replace(" ", "") == truth.replace(" ", "")


def _same_brackets(given: str, truth: str) -> bool:
    bare, bare_truth = given, truth
    if (given.startswith("[") and given.endswith("]") and not truth.startswith("(")) or (
        given.startswith("(") and given.endswith(")") and not truth.startswith("[")
    ):
        bare, bare_truth = given.strip("[]()"), truth.strip("[]()")
    table = str.maketrans("", "", "{}()")
    if bare.translate(table) == bare_truth.translate(table):
        return True
    same_ends = given and truth and given[0] in "([" and given[-1] in ")]" and given[0] == truth[0]
    if same_ends and given[-1] == truth[-1] and _all_equal(given[1:-1].split(","), truth[1:-1].split(",")):
        return True
    if "," in given and "," in truth:
        ours, theirs = [each.strip() for each in given.split(",")], [each.strip() for each in truth.split(",")]
        if len(ours) == len(theirs):
            return _all_equal(ours, theirs)
    if given.startswith("Point") and truth[0] == "(" and truth[-1] == ")":
        return _all_equal(given[given.find("(") + 1 : -1].split(","), truth[1:-1].split(","))
    return False  # the original's symbolic comparison always fails


def _all_equal(ours: list[str], theirs: list[str]) -> bool:
    if len(ours) != len(theirs):
        return False
    parts = [_prime_equal(a, b, math.pi) for a, b in zip(ours, theirs)]  # an error in any is a wrong answer
    return all(parts)


def _prime_form(text: Any, pi: float) -> Any:
    if not isinstance(text, str):
        return text
    if re.match(r"\$\d+(\.\d+)?", text):
        return text[1:]
    if re.match(r"^\d+(\.\d+)?\\?%$", text):
        return text.replace("\\%", "").replace("%", "")
    if "_" in text:
        return int(float(text.split("_")[0]))
    return _with_pi(text, pi) if "\\pi" in text else text


def _with_pi(text: str, pi: float) -> Any:
    at = text.find("\\pi")
    while at != -1:
        factor = f"*{pi}" if at > 0 and text[at - 1].isdigit() else f"1*{pi}"
        text = text[:at] + factor + text[at + 3 :]
        at = text.find("\\pi", at + 1)
    try:
        return _arithmetic(ast.parse(text.strip(), mode="eval").body)
    except (ValueError, SyntaxError, ArithmeticError, RecursionError, MemoryError):
        return text


_INTERVALS = {"Interval": "[]", "Interval.Ropen": "[)", "Interval.Lopen": "(]", "Interval.open": "()"}
_OPERATORS: dict[type, Any] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.UAdd: operator.pos, ast.USub: operator.neg, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip


def _arithmetic(node: ast.expr) -> Any:
    """The value of sums, products and tuples of numbers; ValueError on everything else a model may write."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_arithmetic(node.operand))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        base, power = _arithmetic(node.left), _arithmetic(node.right)
        if abs(base) > 1e6 or abs(power) > 20:
            raise ValueError("a large power")
        return base**power
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_arithmetic(node.left), _arithmetic(node.right))
    if isinstance(node, (ast.Tuple, ast.List)):
        values = [_arithmetic(each) for each in node.elts]
        return tuple(values) if isinstance(node, ast.Tuple) else values
    raise ValueError("not arithmetic")


def _prime_number(value: Any) -> float | None:
    text = str(value)
    return _as_float(text.replace("{,}", "")) if "{,}" in text else _as_float(text.replace(",", ""))


def _spelled_interval(text: str) -> str:
    for name, ends in _INTERVALS.items():
        if found := re.match(rf"^{re.escape(name)}\((.*)\)$", text):
            return f"{ends[0]}{found[1]}{ends[1]}"
    return text


def _as_float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
