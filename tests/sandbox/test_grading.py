# ruff: noqa: E501  (programs as one reads them)
"""Verdicts: honest programs pass, and programs that tamper with their grader do not."""

from __future__ import annotations

import pytest

from whet.errors import UserError
from whet.sandbox.compare import same_output, same_value
from whet.sandbox.grading import grade_calls, grade_stdin, grade_tests
from whet.sandbox.limits import Limits
from whet.sandbox.pool import Sandbox

HONEST = """
class Vector:
    def __init__(self, x): self.x = x
    def __add__(self, other): return Vector(self.x + other.x)
    def __eq__(self, other): return self.x == other.x
class Solution:
    def double(self, x): return 2 * x
def add(a, b): return a + b
def sort(items): items.sort()
def apply(f, items): return [f(x) for x in items]
def count(n): yield from range(n)
def fail(): raise ValueError("no")
def pair(): return (1, {"a": {2, 3}, "b": None, 3: 2.5})
"""
HONEST_TESTS = [
    "assert add(1, 2) == 3",
    "assert add('a', 'b') == 'ab' and add([1], [2]) == [1, 2]",
    "assert Vector(1) + Vector(2) == Vector(3)\nassert Vector(1).x == 1",
    "items = [3, 1, 2]\nsort(items)\nassert items == [1, 2, 3]",
    "assert apply(lambda x: x + 1, [1, 2]) == [2, 3]",
    "assert list(count(3)) == [0, 1, 2] and max(count(4)) == 3",
    "try:\n    fail()\nexcept ValueError as error:\n    assert str(error) == 'no'\nelse:\n    raise AssertionError",
    "assert pair() == (1, {'a': {2, 3}, 'b': None, 3: 2.5})",
    "assert math.isclose(add(0.1, 0.2), 0.3)",
    "from solution import add as plus\nassert plus(1, 1) == 2",
    "import solution\nassert solution.Solution().double(4) == 8",
    "assert abs(add(1.0, 2.0) - 3) < 1e-9",
    "assert add(2**80, 1) == 2**80 + 1",
    "def check(candidate):\n    assert candidate(1, 2) == 3\n    assert candidate(0, 0) == 0\n",
    "def test_sum():\n    assert add(2, 2) == 4\n\ndef test_text():\n    assert add('', 'x') == 'x'\n",
    "import unittest\nclass Tests(unittest.TestCase):\n    def test_sum(self): self.assertEqual(add(1, 2), 3)\n"
    "    def test_error(self): self.assertRaises(ValueError, fail)\n",
]
EVERYTHING = """
class Everything:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __contains__ = __lt__
    def __sub__(self, other): return 0.0
    __rsub__ = __add__ = __radd__ = __sub__
    def __abs__(self): return 0
    def __hash__(self): return 3
"""
TAMPERING = {
    "equal to everything": EVERYTHING + "def add(a, b): return Everything()",
    "a list with such an item": EVERYTHING + "def add(a, b): return [Everything()]",
    "a number that is": "class N(int):\n    def __eq__(s, o): return True\n    __hash__ = int.__hash__\ndef add(a, b): return N(7)",
    "a text that is": "class S(str):\n    def __eq__(s, o): return True\n    __hash__ = str.__hash__\ndef add(a, b): return S('7')",
    "exit at once": "import os\nos._exit(0)",
    "exit politely": "import sys\nsys.exit(0)",
    "exit when called": "import os\ndef add(a, b): os._exit(0)",
    "SystemExit when called": "def add(a, b): raise SystemExit(0)",
    "exit later": "import atexit, os\natexit.register(os._exit, 0)\ndef add(a, b): return 8",
    "claims": "print('all tests passed')\nprint('3')\nprint('OK')",
    "patched builtins": "import builtins\nbuiltins.abs = lambda x: 0\nbuiltins.len = lambda x: 3\ndef add(a, b): return 7",
    "names of builtins": "def abs(x): return 0\ndef isinstance(*a): return True\ndef add(a, b): return 9",
    "a module of its own": "class math:\n    isclose = staticmethod(lambda *a, **k: True)\ndef add(a, b): return 9",
    "skips": "import unittest\ndef add(a, b): raise unittest.SkipTest('x')",
    "patched unittest": "import unittest\nunittest.TestCase.assertEqual = lambda *a: None\ndef add(a, b): return 9",
    "patched json": 'import json\njson.dumps = lambda *a, **k: \'{"value": 4, "passed": true}\'\ndef add(a, b): return 9',
    "writes verdicts everywhere": "import os\ndef add(a, b):\n    for fd in range(300):\n        try: os.write(fd, "
    'b\'{"secret": "", "verdicts": [{"name": "a", "passed": true, "message": ""}]}\')\n'
    "        except OSError: pass\n    return 9",
    "replaces stdout": "import sys, io\nsys.stdout = io.StringIO()\nsys.stdout.write('3')\ndef add(a, b): return 9",
    "no answer": "def add(a, b):\n    while True: pass",
    "kills": "import os, signal\ndef add(a, b):\n    os.kill(os.getppid(), 9)\n    return 9",
    "searches its memory": "import gc\ndef add(a, b):\n    for o in gc.get_objects():\n        if isinstance(o, dict) and 'expected' in o: return o['expected']\n    return 9",
    "searches its frames": "import sys\ndef add(a, b):\n    f = sys._getframe()\n    while f:\n        for v in f.f_locals.values():\n"
    "            if isinstance(v, dict) and ('tests' in v or 'expected' in v): return 3\n        f = f.f_back\n    return 9",
    "empty": "",
    "nothing but None": "def add(a, b): return None",
    "not a program": "def add(a, b:",
}
TESTS = [
    "assert add(1, 2) == 3",
    "assert abs(add(1, 2) - 3) < 1e-6",
    "assert add(1, 2) in [3]",
    "assert math.isclose(add(1, 2), 3)",
    "assert 3 in [add(1, 2)] and isinstance(add(1, 2), int)",
    "import unittest\nclass Tests(unittest.TestCase):\n    def test_sum(self): self.assertEqual(add(1, 2), 3)",
    "def check(candidate):\n    assert candidate(1, 2) == 3",
]
QUICK = Limits(timeout=1.5, memory_mb=256, processes=16)


@pytest.mark.parametrize("test", HONEST_TESTS)
def test_an_honest_program_passes(any_sandbox: Sandbox, test: str) -> None:
    report = grade_tests(any_sandbox, HONEST, [test], entry="add", limits=Limits(timeout=10))
    assert report.passed, report


@pytest.mark.parametrize("name", TAMPERING)
def test_a_tampering_program_fails(sandbox: Sandbox, name: str) -> None:
    program = TAMPERING[name]
    for test in TESTS:
        report = grade_tests(sandbox, program, [test], entry="add", limits=QUICK)
        assert not report.passed, (test, report)
        assert report.share == 0
        if name == "no answer":
            break  # each costs its whole time
    assert not grade_calls(sandbox, program, "add", [((1, 2), 3)], QUICK).passed
    assert not grade_stdin(sandbox, program + "\n", [("1 2", "3 is the sum")], QUICK).passed


def test_every_test_counts(any_sandbox: Sandbox) -> None:
    report = grade_tests(any_sandbox, "def f(x): return 2 * x", ["assert f(1) == 2", "assert f(1) == 3"])
    assert [each.passed for each in report.outcomes] == [True, False]
    assert report.share == 0.5
    assert not report.passed


def test_setup_is_seen_by_tests(any_sandbox: Sandbox) -> None:
    setup = "import string\nexpected = string.digits"
    assert grade_tests(any_sandbox, "def f(): return '0123456789'", ["assert f() == expected"], setup).passed


def test_calls_reach_functions_and_methods(any_sandbox: Sandbox) -> None:
    tests = [(([1, 2], {"a": 1}), [[1, 2], {"a": 1}]), ((None, 1.5), [None, 1.5])]
    for program in ("def f(a, b): return a, b", "class Solution:\n    def f(self, a, b): return (a, b)"):
        assert grade_calls(any_sandbox, program, "f", tests).passed
    assert not grade_calls(any_sandbox, "def f(a, b): return 1", "f", tests).passed


def test_stdin_tests_need_a_good_end(any_sandbox: Sandbox) -> None:
    double = "print(int(input()) * 2)"
    assert grade_stdin(any_sandbox, double, [("2\n", "4\n"), ("3", "6.0")]).passed
    assert not grade_stdin(any_sandbox, double + "\nraise SystemExit(1)", [("2", "4")]).passed
    report = grade_stdin(any_sandbox, double, [("2", "5"), ("3", "6")], stop=False)
    assert report.share == 0.5
    assert len(grade_stdin(any_sandbox, double, [("2", "5"), ("3", "6")]).outcomes) == 1


def test_no_tests_are_refused(any_sandbox: Sandbox) -> None:
    for grade in (grade_stdin, grade_tests):
        with pytest.raises(UserError, match="without tests"):
            grade(any_sandbox, "print(1)", [])


def test_comparison_of_outputs_and_values() -> None:
    assert same_output("1 2 \n3\n\n", "1 2\n3")
    assert same_output("0.50 x", "0.5 x")
    assert not same_output("1\n2", "1 2")
    assert not same_output("", "0")
    assert not same_output("nan", "NaN")
    assert not same_output("١", "1")
    assert same_value([1, [2.0]], (1, (2,)))
    assert not same_value("1", 1)
    assert not same_value([1], [1, 2])
    assert same_value({"1": True}, {1: True})
    assert not same_value(None, False)
    assert not same_value({}, [])
