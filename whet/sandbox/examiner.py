"""Run hidden tests in a process of their own, which no line of the program's code ever enters.

The names that tests take from the program are stand-ins (proxies.py) that ask the program's process. The verdict
leaves through a pipe that only this process has. Names of built-in functions and of standard modules are never taken
from the program, unless the name is the one under test.
"""

from __future__ import annotations

import builtins
import importlib
import json
import os
import sys
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from whet.sandbox.interpreter import MODES
from whet.sandbox.proxies import Program
from whet.sandbox.values import GoneError, Wire

if TYPE_CHECKING:
    import ast

MODULES = ("solution", "main", "program", "candidate")  # names under which tests may import the program
# Packages that tests often use without an import, by the names they go by; also never taken from the program.
_PACKAGES = {"np": "numpy", "numpy": "numpy", "pd": "pandas", "pandas": "pandas", "pytest": "pytest"}
_WIRE = 0  # the socket to the program is where stdin would be


def run_tests(request: dict[str, Any], channel: int) -> None:
    """Run every test and write the verdicts."""
    program = Program(Wire(_WIRE))
    verdicts: list[dict[str, Any]] = []
    try:
        program.wait_until_loaded()
        names = [name for name in program.ask("names") if isinstance(name, str)]
        examiner = Examiner(program, names, request)
        verdicts = [{"name": name, "passed": why == "", "message": why} for name, why in examiner.verdicts()]
    except GoneError:
        verdicts.append({"name": "load", "passed": False, "message": "the program ended while it was loaded"})
    left = memoryview(json.dumps({"secret": request["secret"], "verdicts": verdicts}).encode())
    while left:
        left = left[os.write(channel, left) :]


class Examiner:
    """Tests of one program and the names they see."""

    def __init__(self, program: Program, names: list[str], request: dict[str, Any]) -> None:
        self._program, self._request = program, request
        self._names = set(names)
        self._entry: str | None = request.get("entry")
        for name in (*MODULES, *request.get("modules", ())):
            sys.modules[name] = self._module(name)

    def verdicts(self) -> Iterator[tuple[str, str]]:
        """Yield the name of each test and why it failed; empty for one that passed."""
        setup = self._request.get("setup", "")
        for at, text in enumerate(self._request["tests"]):
            yield from self._one(f"test {at}", setup, text)

    def _one(self, name: str, setup: str, text: str) -> Iterator[tuple[str, str]]:
        import ast  # here, because zygotes that hold it fork more slowly

        namespace: dict[str, Any] = {"__name__": "tests"}
        try:
            tree = ast.parse(f"{setup}\n{text}")
            self._fill(namespace, tree)
            exec(compile(tree, "tests.py", "exec"), namespace)
        except BaseException as error:
            yield name, _why(error)
            return
        found = list(self._functions(namespace))
        if not found:
            yield name, ""  # statements alone, which have all been executed
        for each, call in found:
            yield f"{name}: {each}", _outcome(call)

    def _functions(self, namespace: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """Yield what a text of tests defines: check(candidate), functions test_*, unittest's cases."""
        if isinstance(namespace.get("check"), types.FunctionType) and self._entry is not None:
            yield "check", lambda: namespace["check"](self._take(str(self._entry)))
        for name, value in list(namespace.items()):
            if name.startswith("test") and isinstance(value, types.FunctionType):
                yield name, value
            elif isinstance(value, type) and any(base.__module__.startswith("unittest") for base in value.__mro__):
                for method in sorted(dir(value)):
                    if method.startswith("test"):
                        yield f"{name}.{method}", lambda case=value, method=method: _run_case(case(method))

    def _fill(self, namespace: dict[str, Any], tree: ast.AST) -> None:
        """Put in every name that the tests use and do not define: of the standard library, else of the program."""
        import ast

        nodes = list(ast.walk(tree))
        used = {node.id for node in nodes if isinstance(node, ast.Name)}
        for name in sorted(used):
            if name == self._entry and name in self._names:
                namespace[name] = self._take(name)
            elif hasattr(builtins, name):
                continue
            elif name in sys.stdlib_module_names:
                namespace[name] = importlib.import_module(name)
            elif name in _PACKAGES:
                namespace[name] = importlib.import_module(_PACKAGES[name])
            elif name in self._names:
                namespace[name] = self._take(name)
        if self._entry is not None:
            namespace.setdefault("candidate", self._take(self._entry))

    def _take(self, name: str) -> Any:
        if name not in self._names and "Solution" in self._names:
            return getattr(self._program.ask("global", name="Solution")(), name)
        return self._program.ask("global", name=name)

    def _module(self, name: str) -> types.ModuleType:
        module = types.ModuleType(name)
        usable = sorted(each for each in self._names if not hasattr(builtins, each) and not each.startswith("_"))
        module.__dict__["__all__"] = [each for each in usable if each not in sys.stdlib_module_names]
        module.__dict__["__getattr__"] = self._attribute
        return module

    def _attribute(self, name: str) -> Any:
        if name.startswith("__") or name not in self._names:
            raise AttributeError(f"the program defines no {name}")
        return self._take(name)


def _run_case(case: Any) -> None:
    """Run one test of unittest's; what it found is raised."""
    import unittest

    result = unittest.TestResult()
    case.run(result)
    problems = result.errors + result.failures
    if problems:
        raise AssertionError(problems[0][1].strip().splitlines()[-1])
    if result.skipped or result.unexpectedSuccesses or result.testsRun != 1:
        raise AssertionError("the test was skipped")


def _outcome(call: Any) -> str:
    try:
        call()
    except BaseException as error:
        return _why(error)
    return ""


def _why(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:500]


MODES["tests"] = run_tests
