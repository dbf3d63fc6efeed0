"""From the config to tools: functions by file or module, built-in names, MCP servers and verl's tool YAML."""

from __future__ import annotations

import importlib
import inspect
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from whet.config.registry import Registry, read_file, said
from whet.errors import UserError
from whet.tools.functions import FunctionTool
from whet.tools.protocol import Tool

KEY = "worker.rollout.tools"
TOOLS = Registry(KEY, "whet.tools.builtin", "TOOL", entry_points="whet.tools")
MCP = "mcp:"  # begins an entry that is the command line or the address of an MCP server
_METHODS = ("create", "execute", "reward", "release")


def load_tools(names: list[str], options: Mapping[str, Any], resolve: Callable[[str], Path] = Path) -> list[Tool]:
    """Return the tools of a config; `options` has keyword arguments of tools by their names."""
    tools: list[Tool] = []
    try:
        for name in names:
            tools += _load(name, options, resolve)
        _check_all(tools, names, options)
    except UserError:
        close_tools(tools)
        raise
    return tools


def close_tools(tools: Iterable[Tool]) -> None:
    """End what tools started."""
    for tool in tools:
        close = getattr(tool, "close", None)
        if callable(close):
            close()


def _check_all(tools: list[Tool], names: list[str], options: Mapping[str, Any]) -> None:
    for tool in tools:
        _check(tool)
    seen: set[str] = set()
    for tool in tools:
        if tool.name in seen:
            raise UserError(f"{KEY}: two tools are called {tool.name}; rename one")
        seen.add(tool.name)
    unknown = sorted(set(options) - seen - set(names))
    if unknown:
        raise UserError(f"worker.rollout.tool_args: there is no tool {unknown[0]}; there are {', '.join(seen)}")


def _load(name: str, options: Mapping[str, Any], resolve: Callable[[str], Path]) -> list[Tool]:
    if name.endswith((".yaml", ".yml")):
        from whet.tools.verl import load_config

        return load_config(Path(resolve(name)))
    if name.endswith(".json"):
        from whet.tools.mcp_tools import load_servers, read_servers

        return load_servers(read_servers(Path(resolve(name))), f"{KEY}={name}")
    if name.startswith(MCP):
        from whet.tools.mcp_tools import load_servers

        return load_servers(_server(name.removeprefix(MCP).strip(), name), f"{KEY}={name}")
    if name in TOOLS.names:
        return [_made(TOOLS.find(name), name, options)]
    path, colon, attribute = name.rpartition(":")
    if path.endswith(".py"):
        return [_made(read_file(f"{KEY}={name}", Path(resolve(path)).absolute(), attribute), name, options)]
    if not colon:
        TOOLS.find(name)  # raises with the names that there are
    return [_made(imported(f"{path}.{attribute}", f"{KEY}={name}"), name, options)]


def _server(given: str, name: str) -> dict[str, dict[str, Any]]:
    """Return the server that a command line or an address stands for."""
    if given.startswith(("http://", "https://")):
        return {given: {"url": given}}
    try:
        words = shlex.split(given)
    except ValueError as error:
        raise UserError(f"{KEY}={name}: the command line cannot be read: {error}") from None
    if not words:
        raise UserError(f"{KEY}={name}: expected mcp:COMMAND or mcp:http://ADDRESS")
    return {given: {"command": words[0], "args": words[1:]}}


def imported(dotted: str, label: str) -> Any:
    """Return what a dotted name stands for."""
    module, _, attribute = dotted.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:
        raise UserError(f"{label}: {dotted} cannot be imported: {said(error)}") from error


def _made(found: Any, name: str, options: Mapping[str, Any]) -> Tool:
    """Return a tool of a function, a class or an object."""
    label = f"{KEY}={name}"
    if inspect.isclass(found):
        given = options.get(getattr(found, "name", ""), options.get(name, {}))
        try:
            return found(**dict(given or {}))  # type: ignore[return-value]
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"{label}: cannot be made: {said(error)}") from error
    if all(callable(getattr(found, method, None)) for method in _METHODS):
        return found  # type: ignore[no-any-return]
    if not callable(found):
        raise UserError(f"{label}: expected a function or a tool, found a {type(found).__name__}")
    return FunctionTool(found, label)


def _check(tool: Any) -> None:
    """Refuse objects that are no tools, and schemas that templates cannot read."""
    missing = [method for method in _METHODS if not callable(getattr(tool, method, None))]
    label = f"{KEY}: tool {getattr(tool, 'name', type(tool).__name__)}"
    if missing:
        raise UserError(f"{label} has no method {', '.join(missing)}")
    schema = getattr(tool, "schema", None)
    function = schema.get("function") if isinstance(schema, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
        raise UserError(f"{label}: its schema must be an object with type and function, the latter with a name")
    if function["name"] != tool.name:
        raise UserError(f"{label}: its schema calls it {function['name']}")
    parameters = function.get("parameters")
    if not isinstance(parameters, dict) or not isinstance(parameters.get("properties", {}), dict):
        raise UserError(f"{label}: parameters of its schema must be an object with properties")
