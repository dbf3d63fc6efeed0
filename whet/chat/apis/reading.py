"""Checks that readers of requests share: each says in a sentence which field is wrong."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from whet.chat.messages import Message

Body = dict[str, Any]
DEEPEST = 60  # levels of lists and objects in arguments of calls and in schemas


class BadRequestError(Exception):
    """A request that cannot be answered: a sentence, and the field that it is about."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param, self.code = param, code


@dataclass(frozen=True, slots=True)
class Translated:
    """A request of another API as the body of a chat completion."""

    chat: Body
    messages: list[Message] = field(default_factory=list)  # those that a later request may refer back to
    echo: Body = field(default_factory=dict)  # what the answer repeats
    keep: bool = False  # True if later requests may go on from the answer


def read_object(given: Any, where: str) -> Mapping[str, Any]:
    """Return an object of JSON."""
    if not isinstance(given, Mapping):
        raise BadRequestError(f"{where} must be an object", where)
    return given


def read_list(given: Any, where: str) -> list[Any]:
    """Return a list of JSON."""
    if not isinstance(given, list):
        raise BadRequestError(f"{where} must be a list", where)
    return given


def read_text(given: Any, where: str) -> str:
    """Return a text."""
    if not isinstance(given, str):
        raise BadRequestError(f"{where} must be a text", where)
    return given


def read_name(given: Any, where: str) -> str:
    """Return a text that is not empty."""
    if not read_text(given, where):
        raise BadRequestError(f"{where} must not be empty", where)
    return str(given)


def read_flag(given: Any, where: str) -> bool:
    """Return true or false; null is false."""
    if given is not None and not isinstance(given, bool):
        raise BadRequestError(f"{where} must be true or false", where)
    return bool(given)


def read_count(given: Any, where: str) -> int:
    """Return a whole number of at least 1."""
    if isinstance(given, float) and given.is_integer():
        given = int(given)
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given < 2**31:
        raise BadRequestError(f"{where} must be a whole number of at least 1", where)
    return given


def read_number(given: Any, where: str) -> float:
    """Return a number."""
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not -1e9 <= given <= 1e9:
        raise BadRequestError(f"{where} must be a number", where)
    return given


def check_depth(given: Any, where: str) -> None:
    """Refuse values that nest too deeply for templates to write."""
    level = [given]
    for _ in range(DEEPEST):
        level = [
            inner
            for each in level
            if isinstance(each, (dict, list))
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return
    raise BadRequestError(f"{where} nests more than {DEEPEST} levels deep", where)


def check_fields(body: Mapping[str, Any], known: Collection[str], strict: bool) -> None:
    """Refuse a field that is not known, where nothing may be silently ignored."""
    if strict:
        for name, value in body.items():
            if name not in known and value is not None:
                raise BadRequestError(f"{str(name)[:200]}: this field is not supported", str(name)[:200])


def check_off(body: Mapping[str, Any], refused: Mapping[str, tuple[Any, ...]]) -> None:
    """Refuse fields whose meaning could not be kept, unless they are off: null, or one of the values given."""
    for name, fine in refused.items():
        if body.get(name) is not None and body[name] not in fine:
            raise BadRequestError(f"{name}={str(body[name])[:100]} is not supported here: leave it out", name)


def function_tool(name: str, description: Any, parameters: Any, where: str) -> Body:
    """Return a tool as chat completions have it."""
    function: Body = {"name": name}
    if description is not None:
        function["description"] = read_text(description, f"{where}.description")
    if parameters is not None:
        function["parameters"] = dict(read_object(parameters, f"{where}.parameters"))
        check_depth(parameters, f"{where}.parameters")
    return {"type": "function", "function": function}


def joined(parts: list[Body], between: str) -> str | list[Body]:
    """Return parts of a message as one text where all of them are text."""
    if all(part["type"] == "text" for part in parts):
        return between.join(part["text"] for part in parts)
    return parts
