"""The tool of the tiny run: what it is given is run in whet's sandbox, as the tool `python` runs programs."""

from typing import Any

from whet.tools.builtin.python import Python
from whet.tools.protocol import ToolResult, function_schema


class Interpreter(Python):
    """The interpreter under the name and the argument that the tiny model has learned to write."""

    name = "calculator"
    schema = function_schema(
        "calculator",
        "Run a Python expression and return its value.",
        {"expression": {"type": "string", "description": "the expression"}},
        ["expression"],
    )

    def execute(self, sample_id: str, arguments: dict[str, Any]) -> ToolResult:
        """Run the expression in a process of its own."""
        result = super().execute(sample_id, {"code": f"print({arguments['expression']})"})
        result.content = result.content.strip()
        return result
