"""Score answers to grade-school word problems (GSM8K): one number is right, and it should come after `####`.

An answer counts wherever it is found, in this order: after the last `####`, in the last \\boxed{}, as the last number
of the response. The format score is for `####` followed by a number and nothing else. With `strict: true` in
`worker.reward.reward_function_kwargs` only `####` counts.
"""

import re
from decimal import Decimal, InvalidOperation

NUMBER = r"\$?(?:(?<!\d)[-+])?\$?(?:\d[\d,]*\.?\d*|\.\d+)"
MARKED = re.compile(r"####\s*(" + NUMBER + r")")
CLOSING = re.compile(r"####[ \t]*" + NUMBER + r"%?\.?\s*\Z")
BOXED = re.compile(r"\\boxed\{\s*(" + NUMBER + r")[^{}]*\}")
ANY_NUMBER = re.compile(NUMBER)


def compute_score(reward_input: dict, strict: bool = False, format_weight: float = 0.1) -> dict:
    """The accuracy and the format of one response, and their weighted sum."""
    response = reward_input["response"]
    truth = as_number(find_answer(str(reward_input["ground_truth"])))
    answer = as_number(find_answer(response, strict))
    accuracy = float(answer is not None and answer == truth)
    form = float(CLOSING.search(response) is not None)
    return {
        "overall": (1 - format_weight) * accuracy + format_weight * form,
        "accuracy": accuracy,
        "format": form,
    }


def find_answer(text: str, strict: bool = False) -> str | None:
    """The text of the final number, or None."""
    for pattern in (MARKED,) if strict else (MARKED, BOXED, ANY_NUMBER):
        found = pattern.findall(text)
        if found:
            return found[-1]
    return None


def as_number(text: str | None) -> Decimal | None:
    """The value of a number as people write it: with commas, a dollar sign, a plus."""
    try:
        return Decimal(re.sub(r"[$,+]", "", text)) if text else None
    except InvalidOperation:
        return None
