"""Plain Python functions as tools: the schema comes from type hints and the docstring."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union

from whet.envs.observations import as_number
from whet.errors import UserError
from whet.tools.protocol import PlainTool, ToolError, ToolResult, function_schema

_SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_ARGUMENT = re.compile(r"\s+\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_PARAM = re.compile(r"\s*:param\s+(?:\w+\s+)?(\w+)\s*:\s*(.*)")
_SECTION = re.compile(r"\s*(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?)\s*:\s*$")


class FunctionTool(PlainTool):
    """A function that the policy may call."""

    def __init__(self, function: Callable[..., Any], label: str = "") -> None:
        """`label` begins the sentences of errors."""
        self._function = function
        self.name = _name(function)
        self.schema = schema_of(function, label or self.name)
        self._hints = _hints(function, label or self.name)
        self.is_async = inspect.iscoroutinefunction(function)

    def execute(self, sample_id: str, arguments: dict[str, Any]) -> Any:
        """Call the function; of an `async def` the coroutine is returned."""
        made = {name: _made(value, self._hints.get(name)) for name, value in arguments.items()}
        value = self._function(**made)
        return self._awaited(value) if inspect.isawaitable(value) else as_result(value)

    async def _awaited(self, value: Any) -> ToolResult:
        return as_result(await value)


def as_result(value: Any) -> ToolResult:
    """Return what a function returned as a result: text, JSON of objects, images, or (value, reward)."""
    if isinstance(value, ToolResult):
        return value
    if isinstance(value, tuple) and len(value) == 2 and _is_reward(value[1]):
        return dataclasses.replace(as_result(value[0]), reward=float(value[1]))
    if isinstance(value, str):
        return ToolResult(value)
    if type(value).__module__.startswith("PIL"):
        return ToolResult(images=[value])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    try:
        return ToolResult(json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError):
        return ToolResult(str(value))


def _is_reward(value: Any) -> bool:
    """True for a number of Python's, and for one of numpy's or torch's; a bool is a value."""
    return not isinstance(value, bool) and (isinstance(value, int | float) or as_number(value) is not None)


def schema_of(function: Callable[..., Any], label: str) -> dict[str, Any]:
    """Return the schema of a function; `UserError` for parameters that cannot be described."""
    summary, described = _documented(_doc(function))
    hints = _hints(function, label)
    properties: dict[str, Any] = {}
    required = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise UserError(f"{label}: parameter {name} must be an ordinary one that can be given by name")
        if name not in hints:
            raise UserError(f"{label}: parameter {name} needs a type hint, from which the model's schema is made")
        properties[name] = type_schema(hints[name], f"{label}: parameter {name}")
        if name in described:
            properties[name]["description"] = described[name]
        if parameter.default is parameter.empty:
            required.append(name)
        elif _is_json(parameter.default):
            properties[name]["default"] = parameter.default
    return function_schema(_name(function), summary, properties, required)


def type_schema(hint: Any, label: str) -> dict[str, Any]:
    """Return the JSON schema of a type hint."""
    origin, given = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or hint is inspect.Parameter.empty:
        return {}
    if hint in _SIMPLE:
        return {"type": _SIMPLE[hint]}
    if origin is Literal:
        kinds = sorted({_SIMPLE.get(type(value), "string") for value in given})
        return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": list(given)}
    if origin in (Union, types.UnionType):
        return _union(given, label)
    if origin is typing.Annotated:
        note = next((text for text in given[1:] if isinstance(text, str)), None)
        return type_schema(given[0], label) | ({"description": note} if note else {})
    if hint in (list, tuple, set) or origin in (list, tuple, set, Sequence):
        inside = [each for each in given if each is not Ellipsis]
        return {"type": "array"} | ({"items": type_schema(inside[0], label)} if inside else {})
    if hint is dict or origin in (dict, Mapping):
        values = type_schema(given[1], label) if len(given) == 2 else {}
        return {"type": "object"} | ({"additionalProperties": values} if values else {})
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return type_schema(Literal[tuple(each.value for each in hint)], label)  # type: ignore[valid-type]
    if dataclasses.is_dataclass(hint):
        return _object(hint, label)
    raise UserError(
        f"{label}: {getattr(hint, '__name__', hint)} has no JSON schema; use str, int, float, bool, list, dict, "
        "Literal, Optional or a dataclass"
    )


def _union(given: tuple[Any, ...], label: str) -> dict[str, Any]:
    schemas = [type_schema(each, label) for each in given]
    if all(schema.keys() == {"type"} for schema in schemas):
        return {"type": [schema["type"] for schema in schemas]}
    return {"anyOf": schemas}


def _object(hint: Any, label: str) -> dict[str, Any]:
    hints = typing.get_type_hints(hint)
    fields = dataclasses.fields(hint)
    needed = [f.name for f in fields if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING]
    properties = {f.name: type_schema(hints[f.name], f"{label}.{f.name}") for f in fields}
    return {"type": "object", "properties": properties, "required": needed}


def _made(value: Any, hint: Any) -> Any:
    """Return a dataclass or an enum that an argument describes; other values as they are."""
    for option in typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else (hint,):
        if isinstance(value, dict) and isinstance(option, type) and dataclasses.is_dataclass(option):
            try:
                hints = typing.get_type_hints(option)
                return option(**{name: _made(each, hints.get(name)) for name, each in value.items()})
            except TypeError as error:
                raise ToolError(f"{option.__name__}: {error}") from None
        if isinstance(option, type) and issubclass(option, enum.Enum):
            try:
                return option(value)
            except ValueError as error:
                raise ToolError(str(error)) from None
    if isinstance(value, list) and typing.get_args(hint):
        return [_made(each, typing.get_args(hint)[0]) for each in value]
    return value


def _name(function: Callable[..., Any]) -> str:
    """Return the name of a function, of what a partial calls, or of the class of an object that is called."""
    function = function.func if isinstance(function, functools.partial) else function
    return getattr(function, "__name__", type(function).__name__)


def _doc(function: Callable[..., Any]) -> str:
    return inspect.getdoc(function.func if isinstance(function, functools.partial) else function) or ""


def _hints(function: Callable[..., Any], label: str) -> dict[str, Any]:
    function = function.func if isinstance(function, functools.partial) else function
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except (NameError, TypeError) as error:
        raise UserError(f"{label}: its type hints cannot be read ({error})") from None


def _documented(text: str) -> tuple[str, dict[str, str]]:
    """Return the summary of a docstring and its descriptions of parameters (Google's and Sphinx's way)."""
    summary: list[str] = []
    described: dict[str, str] = {}
    section, last = "", ""
    for line in text.splitlines():
        heading = _SECTION.match(line)
        found = _PARAM.match(line) or (_ARGUMENT.match(line) if section.startswith(("Arg", "Param")) else None)
        if heading:
            section = heading.group(1)
        elif found:
            last = found.group(1)
            described[last] = found.group(2).strip()
        elif section and last and line.startswith("     ") and line.strip():
            described[last] += " " + line.strip()
        elif not section and not line.lstrip().startswith(":"):
            summary.append(line)
    return "\n".join(summary).strip(), described


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return value is not None
