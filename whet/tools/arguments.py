"""Arguments of a call against the tool's schema: types that formats without types lost, and what is wrong."""

from __future__ import annotations

import json
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def checked(arguments: dict[str, Any], schema: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return arguments with the types of a function's schema, and what is wrong with them ("" for nothing).

    A text where the schema wants no text is read as JSON: formats that write values as they are give texts only.
    """
    parameters = schema.get("function", schema).get("parameters") or {}
    properties = parameters.get("properties") or {}
    made = {name: _typed(value, properties.get(name) or {}) for name, value in arguments.items()}
    missing = [name for name in parameters.get("required") or () if name not in made]
    if missing:
        return made, f"missing argument {', '.join(missing)}"
    unknown = [name for name in made if properties and name not in properties]
    if unknown and not parameters.get("additionalProperties"):
        return made, f"unknown argument {', '.join(unknown)}; there are {', '.join(properties)}"
    for name, value in made.items():
        kinds = _kinds(properties.get(name) or {})
        if kinds and not any(_is(value, kind) for kind in kinds):
            return made, f"argument {name} must be {' or '.join(kinds)}, not {json.dumps(value, default=str)[:80]}"
        choices = (properties.get(name) or {}).get("enum")
        if choices and value not in choices:
            return made, f"argument {name} must be one of {', '.join(map(str, choices))}"
    return made, ""


def _typed(value: Any, schema: dict[str, Any]) -> Any:
    kinds = _kinds(schema)
    if not kinds or any(_is(value, kind) for kind in kinds):
        return value
    if isinstance(value, str):
        try:
            read = json.loads(value.strip())
        except (ValueError, RecursionError):
            lowered = value.strip().lower()
            read = {"true": True, "false": False, "none": None}.get(lowered, value)
        return _typed(read, schema) if not isinstance(read, str) else value
    if isinstance(value, float) and value.is_integer() and "integer" in kinds:
        return int(value)
    if "string" in kinds and isinstance(value, int | float | bool):
        return json.dumps(value)
    return value


def _kinds(schema: dict[str, Any]) -> list[str]:
    kind = schema.get("type")
    kinds = [kind] if isinstance(kind, str) else kind if isinstance(kind, list) else []
    return [each for each in kinds if each in _TYPES]


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES[kind])
