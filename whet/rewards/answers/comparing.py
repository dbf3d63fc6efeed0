"""Functions that run in the process for mathematics: math-verify for our own comparison, and the originals' graders.

Arguments and results are JSON. The time limits of math-verify are off: the process that calls has its own.
"""

from __future__ import annotations

import logging

import sympy
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

from whet.rewards.answers.numbers import decimals_of
from whet.rewards.answers.prime import prime_equal
from whet.rewards.answers.prm800k import grade

__all__ = ["equal", "grade", "parsed", "prime_equal", "r1v_equal", "verified", "verified_any"]

EXAMPLES = (
    ("equal", ("x^2+2x+1", "(x+1)^2")),
    ("equal", (r"\frac{\sqrt{3}}{2}", "0.5")),
    ("equal", (r"[0,1)\cup(2,\infty)", r"x\le 1")),
    ("equal", (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\{1,2\}")),
    ("verified", ("42", r"The answer is $41$, so \boxed{43}")),
    ("grade", (r"\frac{\pi}{2}", r"2\sqrt{x}")),
)
DIGITS = 40  # to which two numbers must agree
LEAST_DECIMALS = 2  # of a truth that counts as a rounded number
logging.disable(logging.WARNING)


def equal(truth: str, said: str) -> bool:
    """True if two answers are equal as mathematics; numbers to 40 digits, or to those of a decimal truth."""
    gold, given = _parse(truth), _parse(said)
    if not gold or not given:
        return False
    ours, theirs = given[0], gold[0]
    if isinstance(ours, sympy.Eq) != isinstance(theirs, sympy.Eq):
        return False  # `x =` is gone by now; 3x + 4 = 0 is not 0
    if _is_number(ours) and _is_number(theirs):
        return _same_number(ours, theirs, decimals_of(truth), decimals_of(said))
    return verify(gold, given, timeout_seconds=None) or verify(
        given, gold, timeout_seconds=None, allow_set_relation_comp=True
    )


def verified(truth: str, response: str, latex_truth: bool = False) -> bool:
    """math-verify's own verdict on a whole response; `latex_truth` reads the truth as verl does."""
    gold = _parse(truth, [LatexExtractionConfig()]) if latex_truth else _parse(truth)
    targets = [ExprExtractionConfig(), LatexExtractionConfig()] if latex_truth else None
    given = parse(response, targets, parsing_timeout=None) if targets else parse(response, parsing_timeout=None)
    if latex_truth:
        return any(verify(g, p, timeout_seconds=None) for g in gold for p in given)
    return verify(gold, given, timeout_seconds=None)


def verified_any(truths: list, response: str, joined: list | str) -> bool:
    """Skywork-OR1's verdict: the extracted text is in `joined`, or one of the truths is verified."""
    given = parse(response, parsing_timeout=None)
    if len(given) < 2:
        return False
    if given[1] in joined:
        return True
    for truth in truths:
        try:
            if verify(_parse(truth), given, timeout_seconds=None):
                return True
        except Exception:  # the original goes on to the next truth
            continue
    return False


def r1v_equal(response: str, truth: str) -> bool:
    """R1-V's verdict: math-verify with the prediction as gold."""
    given = parse(response, parsing_timeout=None)
    return verify(given, parse(truth, parsing_timeout=None), timeout_seconds=None)


def parsed(response: str) -> list[str]:
    """Return the expressions that math-verify finds in a response, as texts."""
    return [str(each) for each in parse(response, parsing_timeout=None)]


def _parse(answer: object, targets: list | None = None) -> list:
    text = f"\\boxed{{{answer}}}"
    return parse(text, targets, parsing_timeout=None) if targets else parse(text, parsing_timeout=None)


def _is_number(value: object) -> bool:
    return isinstance(value, sympy.Expr) and not value.free_symbols and bool(value.is_number)


def _same_number(ours: sympy.Expr, theirs: sympy.Expr, decimals: int | None, said_decimals: int | None) -> bool:
    ours, theirs = _exact(ours), _exact(theirs)
    if not ours.is_finite or not theirs.is_finite:
        return bool(ours == theirs)
    if (ours - theirs) == 0:
        return True
    difference, size = abs(sympy.N(ours - theirs, DIGITS)), abs(sympy.N(theirs, DIGITS))
    if difference <= size * sympy.Float(10) ** (5 - DIGITS):
        return True
    if decimals is None or decimals < LEAST_DECIMALS or said_decimals is not None:
        return False
    return bool(difference <= sympy.Rational(1, 2 * 10**decimals))


def _exact(value: sympy.Expr) -> sympy.Expr:
    """The number with its decimals as fractions."""
    return value.xreplace({each: sympy.Rational(str(each)) for each in value.atoms(sympy.Float)})
