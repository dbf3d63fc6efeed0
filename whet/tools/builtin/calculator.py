"""Calculator: arithmetic on numbers, without Python's other features."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

from whet.tools.protocol import PlainTool, ToolError, ToolResult, function_schema

LONGEST = 500  # characters
MOST_BITS = 4096  # of an integer on the way
_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs, "round": round, "min": min, "max": max, "sqrt": math.sqrt, "log": math.log, "exp": math.exp,
    "sin": math.sin, "cos": math.cos, "tan": math.tan, "floor": math.floor, "ceil": math.ceil,
}  # fmt: skip
_NAMES = {"pi": math.pi, "e": math.e}


class Calculator(PlainTool):
    """Computes an expression."""

    name = "calculator"
    schema = function_schema(
        "calculator",
        "Compute an arithmetic expression.",
        {"expression": {"type": "string", "description": "such as (3 + 4) * 12 / 5"}},
        ["expression"],
    )

    def execute(self, sample_id: str, arguments: dict[str, Any]) -> ToolResult:
        """Return the value of `expression`."""
        return ToolResult(shown(compute(str(arguments["expression"]))))


def compute(expression: str) -> int | float:
    """Return the value of an expression; `ToolError` for anything but arithmetic of moderate size."""
    if len(expression) > LONGEST:
        raise ToolError(f"the expression is longer than {LONGEST} characters")
    text = expression.replace("^", "**").replace("×", "*").replace("÷", "/").replace(",", "")
    try:
        value = _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, MemoryError, RecursionError, TypeError, OverflowError, ZeroDivisionError) as error:
        raise ToolError(f"cannot compute {expression[:100]!r}: {error}") from None
    if isinstance(value, complex) or not math.isfinite(value):
        raise ToolError(f"cannot compute {expression[:100]!r}: the result is no finite number")
    return value


def shown(value: int | float) -> str:
    """Return a number as people write it: whole numbers without a fraction."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.Name) and node.id in _NAMES:
        return _NAMES[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _value(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Pow) and isinstance(left, int) and left.bit_length() * abs(right) > MOST_BITS:
            raise ValueError("the power is too large")
        made = _BINARY[type(node.op)](left, right)
        if isinstance(made, int) and made.bit_length() > MOST_BITS:
            raise ValueError("a number is too large")
        return made
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        if node.func.id not in _FUNCTIONS:
            raise ValueError(f"there is no function {node.func.id}")
        return _FUNCTIONS[node.func.id](*map(_value, node.args))
    raise ValueError("only numbers, + - * / // % ** and functions such as sqrt can be computed")


TOOL = Calculator
