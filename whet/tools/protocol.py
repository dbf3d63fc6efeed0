"""The `Tool` protocol: create, execute, reward and release for each sample."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(slots=True)
class ToolResult:
    """Result of a call."""

    content: str = ""  # what the policy reads
    images: list[Any] = field(default_factory=list)  # PIL images, shown behind the text
    reward: float = 0.0  # earned by this call
    failed: bool = False  # True if the content is an error, which is counted


class ToolError(Exception):
    """A tool's own refusal: the message is what the policy reads."""


class Tool(Protocol):
    """A tool; one object serves all samples, and every method may be `async def`."""

    name: str
    schema: dict[str, Any]  # {"type": "function", "function": {"name", "description", "parameters"}}

    def create(self, sample_id: str, **row_kwargs: Any) -> Any:
        """Begin a sample; `row_kwargs` are the row's own settings of this tool."""
        ...

    def execute(self, sample_id: str, arguments: dict[str, Any]) -> Any:
        """Run one call and return a `ToolResult`. Whatever it raises becomes an observation."""
        ...

    def reward(self, sample_id: str) -> Any:
        """Return what the tool's use earned by the end of the episode; None for nothing."""
        ...

    def release(self, sample_id: str) -> Any:
        """End a sample; called once for each `create`, whatever happens."""
        ...


class PlainTool:
    """Base of tools without anything to begin or end for a sample."""

    name: str
    schema: dict[str, Any]

    def create(self, sample_id: str, **row_kwargs: Any) -> Any:
        """Begin a sample."""

    def reward(self, sample_id: str) -> Any:
        """Return no reward."""
        return None

    def release(self, sample_id: str) -> Any:
        """End a sample."""


def function_schema(name: str, description: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    """Return a function's schema as chat templates read it."""
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}
