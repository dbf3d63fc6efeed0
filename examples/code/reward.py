"""Score programs that the quickstart's model writes: each runs in the sandbox against tests that it never sees.

The model knows digits only, so the part of a program that it writes is a list of them: the order by which a function
arranges its items. Whatever it wrote is put into the program as it is; what is no Python fails there, not here.
"""

import random

from whet.rewards.programs.opened import sandbox
from whet.sandbox.grading import grade_calls

PROGRAM = """
ORDER = [{digits}]

def arrange(items):
    return sorted(items, key=ORDER.index)
"""
TESTS = 3


def compute_score(response: str, answer: str) -> dict[str, float]:
    """Fraction of the tests that the program passes; `accuracy` is 1 if it passes all of them."""
    known = [int(digit) for digit in answer.split()]
    program = PROGRAM.format(digits=", ".join(response.removeprefix("Answer:").split()))
    # Drawn anew for every sample, from a seed that depends on the row and the sample: repeated digits, any order.
    lists = [random.choices(known, k=4) for _ in range(TESTS - 1)] + [random.sample(known, len(known))]
    tests = [([items], sorted(items)) for items in lists]
    report = grade_calls(sandbox(), program, "arrange", tests, stop=False)
    return {"overall": report.share, "accuracy": float(report.passed)}
