"""At the start, ask the reward function whether a row's own answer scores more than a wrong response.

A reward function that reads another form than the data has gives every sample the same low score, and nothing is
learned. Forms that models commonly answer in are tried; one that scores more on one row is enough.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from whet.doctor.findings import Finding
from whet.types import Prompt, Sample

if TYPE_CHECKING:
    from whet.rewards.protocol import SampleScorer

ROWS = 4
SECONDS = 10.0  # for all rows; a slower reward function is not checked further
LONGEST = 4000  # characters of an answer that a response may hold
FORMS = (
    "{}",
    "\\boxed{{{}}}",
    "Answer: {}",
    "The answer is {}.",
    "#### {}",
    "<answer>{}</answer>",
    "<think>\nI know.\n</think>\n<answer>{}</answer>",
    "<think>\nI know.\n</think>\n\\boxed{{{}}}",
)
WRONG = ("", "I do not know.")
_CORRECTNESS = ("accuracy", "acc", "overall")  # the first that the function gives


def check_answers(scorer: SampleScorer, prompts: Sequence[Prompt]) -> Finding | None:
    """Return a finding if no form of any row's answer scores more than a wrong response; None where it is unknown."""
    end, shown = time.monotonic() + SECONDS, ""
    for prompt in prompts[:ROWS]:
        answer = answer_text(prompt.answer)
        if answer is None:
            continue
        texts = [*(form.format(answer) for form in FORMS), *WRONG]
        scores = [_correctness(each) for each in scorer.trial([_sample(prompt, text) for text in texts], end)]
        right = [score for score in scores[: len(FORMS)] if score is not None]
        wrong = [score for score in scores[len(FORMS) :] if score is not None]
        if len(right) < len(FORMS) or not wrong:
            return None  # it failed or was too slow, which the dry run or the first step reports
        if max(right) > max(wrong):
            return None
        shown = shown or f"row {prompt.uid}, answer {answer[:80]!r}: {max(right):g}, as for a wrong one"
    if not shown:
        return None
    return Finding(
        "answers",
        0,
        f"the reward function gives a row's own answer no more than a wrong response ({shown}; tried as it is, in "
        "\\boxed{}, after 'Answer:' or '####', and in <answer> tags). If it reads another form, ignore this; else "
        "look at data.answer_key and at how worker.reward.reward_function finds the answer.",
    )


def answer_text(answer: Any) -> str | None:
    """Return an answer as a response may state it; None for what is no answer, such as the tests of a program."""
    if isinstance(answer, list | tuple) and answer:
        answer = answer[0]  # alternatives, each of which is right
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        return None
    text = str(answer)
    if not text.strip() or len(text) > LONGEST or _is_structure(text):
        return None
    return text


def _is_structure(text: str) -> bool:
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False


def _sample(prompt: Prompt, text: str) -> Sample:
    ids = [0] * len(text.split())  # nothing is tokenized; the function sees only how many there are
    return Sample.written(prompt, ids, [0.0] * len(ids), "stop", text=text)


def _correctness(scores: dict[str, float] | None) -> float | None:
    return None if scores is None else next(scores[name] for name in _CORRECTNESS if name in scores)
