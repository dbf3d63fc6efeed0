"""The program's side of a test: its functions and objects, called by the process that runs the tests.

It runs beside the program and is as trustworthy as the program: every answer is data.
"""

from __future__ import annotations

import builtins
import operator
from typing import Any

from whet.sandbox.interpreter import MODES, load
from whet.sandbox.values import GoneError, Wire, decode, encode

_UNARY: dict[str, Any] = {
    "len": len,
    "str": str,
    "repr": repr,
    "bool": bool,
    "int": int,
    "float": float,
    "hash": hash,
    "iter": iter,
}
_UNARY |= {"next": next, "abs": abs, "neg": operator.neg, "index": operator.index}
_BINARY: dict[str, Any] = {
    name: getattr(operator, name) for name in ("eq", "lt", "le", "gt", "ge", "add", "sub", "mul", "truediv")
}
_BINARY |= {
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "getitem": operator.getitem,
    "delitem": operator.delitem,
}
_MUTABLE = (list, dict, set)


class Program:
    """Objects of a program by number, and the operations that tests may ask for."""

    def __init__(self, wire: Wire, names: dict[str, Any]) -> None:
        self._wire, self._names = wire, names
        self._objects: dict[int, Any] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do one operation; an exception is an answer too."""
        try:
            return self._do(request["op"], request)
        except GoneError:
            raise
        except BaseException as error:
            return {"error": type(error).__name__, "text": _text(error), "args": self._arguments(error)}

    def _do(self, op: str, request: dict[str, Any]) -> dict[str, Any]:
        if op == "names":
            return {"value": ["list", [name for name in self._names if not name.startswith("__")]]}
        if op == "global":
            return self._reply(self._names[request["name"]])
        target = self._objects[request["id"]]
        arguments = [decode(item, self._resolve) for item in request.get("arguments", [])]
        if op == "call":
            options = {name: decode(item, self._resolve) for name, item in request["options"].items()}
            before = [self._encoded(item) if type(item) in _MUTABLE else None for item in arguments]
            reply = self._reply(target(*arguments, **options))
            after = [self._encoded(item) if type(item) in _MUTABLE else None for item in arguments]
            changed = {str(at): now for at, (now, then) in enumerate(zip(after, before)) if now != then}
            return reply | {"changed": changed}
        if op == "get":
            return self._reply(getattr(target, request["name"]))
        if op == "set":
            setattr(target, request["name"], arguments[0])
            return {"value": None}
        if op == "setitem":
            target[arguments[0]] = arguments[1]
            return {"value": None}
        return self._reply(_UNARY[op](target) if op in _UNARY else _BINARY[op](target, *arguments))

    def _reply(self, value: Any) -> dict[str, Any]:
        return {"value": self._encoded(value)}

    def _encoded(self, value: Any) -> Any:
        return encode(value, self._refer)

    def _refer(self, value: Any) -> list[Any]:
        self._objects[id(value)] = value  # kept alive, so that the number stays its own
        return ["object", id(value)]

    def _resolve(self, name: str, content: Any) -> Any:
        if name == "object":
            return self._objects[content]
        if name != "callback":
            raise GoneError("a message cannot be read")
        return lambda *arguments: self._call_back(content, arguments)

    def _call_back(self, number: int, arguments: tuple[Any, ...]) -> Any:
        """Call a function of the tests."""
        self._wire.send({"callback": number, "arguments": [self._encoded(item) for item in arguments]})
        while True:
            message = self._wire.receive()
            if "op" not in message:
                break
            self._wire.send(self.answer(message))
        if "error" in message:
            kind = getattr(builtins, str(message["error"]), None)
            if not (isinstance(kind, type) and issubclass(kind, Exception)):
                kind = RuntimeError
            raise kind(message.get("text", ""))
        return decode(message["value"], self._resolve)

    def _arguments(self, error: BaseException) -> Any:
        try:
            return [self._encoded(item) for item in error.args]
        except Exception:  # of an exception that does not tell
            return []


def _text(error: BaseException) -> str:
    try:
        return str(error)[:2000]
    except BaseException:
        return ""


def serve_program(request: dict[str, Any], channel: int) -> None:
    """Load a program and answer its tests until they hang up."""
    wire = Wire(channel)
    program = Program(wire, load(request["source"], "solution").__dict__)
    wire.send({"value": None})  # loaded
    try:
        while True:
            wire.send(program.answer(wire.receive()))
    except GoneError:
        return


MODES["serve"] = serve_program
