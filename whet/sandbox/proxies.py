"""The tests' side of a program: stand-ins for its functions and objects.

The program decides what its objects answer, never what a comparison with the tests' own values gives: an object of the
program is not equal to any plain value, and neither ordered nor combined with one. `in` looks at its items one by one.
"""

from __future__ import annotations

import builtins
from typing import Any

from whet.sandbox.values import GoneError, Wire, decode, encode


class ProgramError(Exception):
    """An exception of a kind that the program defines, or one that would end or skip a test."""


class Program:
    """The connection to a program."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._callbacks: list[Any] = []

    def wait_until_loaded(self) -> None:
        """Return when the program's module has been executed."""
        self._wire.receive()

    def ask(self, op: str, arguments: tuple[Any, ...] = (), **fields: Any) -> Any:
        """Have the program do something, and return or raise what it answers."""
        reply = self._exchange({"op": op, "arguments": [self.encoded(item) for item in arguments], **fields})
        for at, changed in dict(reply.get("changed", {})).items():
            _assign(arguments[int(at)], decode(changed, self.resolve))
        return decode(reply.get("value"), self.resolve)

    def encoded(self, value: Any) -> Any:
        """Return a value of the tests as a message carries it."""
        return encode(value, self._refer)

    def resolve(self, name: str, content: Any) -> Any:
        """Return the stand-in for an object of the program."""
        if name == "object" and isinstance(content, int):
            return Remote(self, content)
        raise GoneError("a message cannot be read")

    def _refer(self, value: Any) -> list[Any]:
        if type(value) is Remote:
            return ["object", object.__getattribute__(value, "_number")]
        if callable(value):
            self._callbacks.append(value)
            return ["callback", len(self._callbacks) - 1]
        raise TypeError(f"a {type(value).__name__} cannot be handed to the program")

    def _exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        self._wire.send(message)
        while True:
            reply = self._wire.receive()
            if "callback" not in reply:
                break
            self._wire.send(self._run_callback(reply))
        if "error" in reply:
            raise self._error(reply)
        return reply

    def _run_callback(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            arguments = [decode(item, self.resolve) for item in request["arguments"]]
            return {"value": self.encoded(self._callbacks[request["callback"]](*arguments))}
        except GoneError:
            raise
        except Exception as error:
            return {"error": type(error).__name__, "text": str(error)[:2000]}

    def _error(self, reply: dict[str, Any]) -> Exception:
        """Return the exception to raise in the tests: of a built-in kind, or ProgramError."""
        kind = getattr(builtins, str(reply["error"]), None)
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            return ProgramError(f"{reply['error']}: {reply.get('text', '')}"[:2000])
        try:
            return kind(*[decode(item, self.resolve) for item in reply.get("args", [])])
        except GoneError:
            raise
        except Exception:
            return kind(reply.get("text", ""))


def _assign(target: Any, value: Any) -> None:
    """Give a list, dict or set of the tests the content that the program left in its copy."""
    if type(target) is list and type(value) is list:
        target[:] = value
    elif isinstance(target, dict | set) and type(value) in (dict, set):
        target.clear()
        target.update(value)


class Remote:
    """An object of the program."""

    def __init__(self, program: Program, number: int) -> None:
        object.__setattr__(self, "_program", program)
        object.__setattr__(self, "_number", number)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        program = object.__getattribute__(self, "_program")
        encoded = {name: program.encoded(item) for name, item in options.items()}
        return program.ask("call", arguments, id=object.__getattribute__(self, "_number"), options=encoded)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return _do(self, "get", name=name)

    def __setattr__(self, name: str, value: Any) -> None:
        _do(self, "set", value, name=name)

    def __eq__(self, other: object) -> bool:
        return type(other) is Remote and _do(self, "eq", other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return _do(self, "hash")

    def __setitem__(self, key: Any, value: Any) -> None:
        _do(self, "setitem", key, value)


def _do(remote: Remote, op: str, *arguments: Any, **fields: Any) -> Any:
    program = object.__getattribute__(remote, "_program")
    return program.ask(op, arguments, id=object.__getattribute__(remote, "_number"), **fields)


def _unary(op: str) -> Any:
    return lambda self: _do(self, op)


def _keyed(op: str) -> Any:
    return lambda self, key: _do(self, op, key)


def _between(op: str) -> Any:
    """Return an operator that is defined between two objects of the program only."""
    return lambda self, other: _do(self, op, other) if type(other) is Remote else NotImplemented


for _name in ("len", "str", "repr", "bool", "int", "float", "iter", "next", "abs", "neg", "index"):
    setattr(Remote, f"__{_name}__", _unary(_name))
for _name in ("getitem", "delitem"):
    setattr(Remote, f"__{_name}__", _keyed(_name))
for _name in ("lt", "le", "gt", "ge", "add", "sub", "mul", "truediv", "floordiv", "mod"):
    setattr(Remote, f"__{_name}__", _between(_name))
