"""Texts that a scorer may evaluate: mathematics and literals pass, whatever acts or takes long does not."""

from __future__ import annotations

from whet.envs.expressions import is_harmless, is_short

ANSWERS = """5 * (3 + 2) - 1 | -X**3/3 + C | sin(x)/2 + exp(2*x) | [1, 2, -3] | [['_', 'Q'], ['Q', '_']] | ABBA | 1 2 3
_ Q _ | 0x1f | {'a': [1, None]} | 2**64 | x**2*y | 3*Integral(x**3*cos(3*x), x) | (A ∧ B) | ten | | 3.5 | 1/0 | ~A
0x176b9e643680"""

PROGRAMS = """__import__('os').system('true') | exec('1') | open('x', 'w') | ().__class__ | x.y | [i for i in (1,)]
S('1') | (lambda: 1)() | (x := 5) | 9**9**9 | ((9**99)**99)**99 | 99999999! | [0]*10**9 | 'a' * 9 | answer*9 | '%s' % x
x[0] | sin(*x) | sin(x=1) | f'{x}' | 1e99999999 | 9 if x else 8 | 1 < 2 | __doc__ | {**x} | 1 << 99999 | factorial(9)"""


def test_answers_pass() -> None:
    answers = [text for line in ANSWERS.splitlines() for text in line.split(" | ")]
    assert [text for text in answers if not is_harmless(text)] == []


def test_programs_do_not() -> None:
    programs = [text for line in PROGRAMS.splitlines() for text in line.split(" | ")]
    assert [text for text in [*programs, "+".join(["1"] * 9000), "x" * 10001] if is_harmless(text)] == []


def test_long_exponents() -> None:
    assert is_short("1e9999 of 12E-3, 0x1e99999")
    assert not is_short("about 1E+99999")
