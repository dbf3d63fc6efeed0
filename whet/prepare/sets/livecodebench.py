"""LiveCodeBench's code generation (Jain et al., 2024): problems with public and private tests.

Private tests stay packed as they are (base64 of compressed text); the scorer unpacks them without running a pickle.
"""

from __future__ import annotations

import json

from whet.data.formats import Columns
from whet.errors import UserError
from whet.prepare.registry import DataSet, Drop, Item, text
from whet.rewards.programs.tests import read_tests

SOURCE = "livecodebench/code_generation_lite"
TESTS = ("public_test_cases", "private_test_cases", "metadata")
_ABOUT = ("question_title", "question_id", "platform", "contest_id", "contest_date", "difficulty")


def _convert(row: Columns, split: str) -> Item:
    question = text(row, "question_content")
    truth = {name: row[name] for name in TESTS if row.get(name)}
    try:
        count = len(read_tests(truth))
    except UserError:
        raise Drop("tests that cannot be read") from None
    if not count:
        raise Drop("no tests")
    if starter := str(row.get("starter_code") or "").strip("\n"):
        question = f"{question}\n\nBegin with this code:\n```python\n{starter}\n```"
    about = {name: str(row[name]) for name in _ABOUT if row.get(name) is not None}
    return Item(question, json.dumps(truth), SOURCE, "code", extra=about)


SET = DataSet(
    "programming contests with hidden tests",
    SOURCE,
    {"test": f"{SOURCE}@test"},
    _convert,
    ", ".join(("question_content", "starter_code", *TESTS, *_ABOUT)),
    instruction="Write one Python program that solves it, in a single ```python block.",
    template="format_prompt/eval_code.jinja",
    note="The answer holds all tests: the public ones stand in the problem, the private ones must not reach the model.",
)
