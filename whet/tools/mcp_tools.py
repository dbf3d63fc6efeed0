"""Tools of MCP servers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whet.errors import UserError
from whet.tools.mcp import START_SECONDS, McpServer
from whet.tools.protocol import PlainTool, Tool, ToolResult


class McpTool(PlainTool):
    """One tool of a server."""

    def __init__(self, server: McpServer, described: Any) -> None:
        self._server, self.name = server, described.name
        parameters = dict(described.input_schema or {"type": "object"})
        parameters.setdefault("properties", {})
        function = {"name": self.name, "description": described.description or "", "parameters": parameters}
        self.schema = {"type": "function", "function": function}

    async def execute(self, sample_id: str, arguments: dict[str, Any]) -> ToolResult:
        """Call the server's tool."""
        return await self._server.call(self.name, arguments)

    def close(self) -> None:
        """End the server, with all its tools."""
        self._server.close()


def load_servers(
    servers: Any, label: str, chosen: list[str] | None = None, seconds: float = START_SECONDS
) -> list[Tool]:
    """Start the servers of an `mcpServers` object and return their tools, or those `chosen`."""
    try:
        import mcp  # noqa: F401
    except ImportError:
        raise UserError(f"{label}: MCP servers need the package mcp; install whet[mcp]") from None
    if not isinstance(servers, Mapping) or not servers:
        raise UserError(f"{label}: expected an object mcpServers with one entry for each server")
    opened: list[McpServer] = []
    tools: list[Tool] = []
    try:
        for name, spec in servers.items():
            opened.append(McpServer(str(name), spec, seconds))
            tools += [McpTool(opened[-1], each) for each in opened[-1].tools if not chosen or each.name in chosen]
        missing = sorted(set(chosen or ()) - {tool.name for tool in tools})
        if missing:
            raise UserError(f"{label}: no MCP server has a tool {missing[0]}")
        if not tools:
            raise UserError(f"{label}: the MCP server {opened[0].name} has no tools")
    except UserError as error:
        for server in opened:
            server.close()
        raise UserError(f"{label}: {str(error).removeprefix(f'{label}: ')}") from None
    return tools


def read_servers(path: Path) -> Any:
    """Return the `mcpServers` object of a JSON file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    return value.get("mcpServers") if isinstance(value, dict) else None
