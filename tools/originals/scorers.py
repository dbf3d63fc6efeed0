"""Cases of the format of scorers.json: what an original reward function gave for one response.

Every case is scored twice: with `match`, which must give the original's number, and under whet's own name, where it may
differ with a reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from originals.entry import TOLERANCE, Result
from whet.errors import UserError
from whet.rewards.answers.process import MathsError, maths
from whet.rewards.answers.truths import decoded
from whet.rewards.dispatch import score_row
from whet.rewards.registry import SCORERS, Score

Case = dict[str, Any]
Read = Callable[[Score], Any]  # from our scores to the form of the original's result


@dataclass(frozen=True, slots=True)
class Original:
    """A function of another system: our scorer, whose numbers it gives, and the form of its result."""

    scorer: str
    match: str
    read: Read
    truth: Callable[[Any], Any] = lambda truth: truth
    renamed: dict[str, str] | None = None  # its options by our names


def _number(score: Score) -> Any:
    return score["overall"]


def _easyr1(score: Score) -> Any:
    return {name: score[name] for name in ("overall", "format", "accuracy") if name in score}


def _dapo(score: Score) -> Any:
    return {"score": 1.0 if score["accuracy"] else -1.0, "acc": bool(score["accuracy"]), "pred": score["pred"]}


def _easyr1_dapo(score: Score) -> Any:
    right = score["accuracy"]
    return {
        "overall": score["overall"],
        "accuracy": 1.0 if right else -1.0,
        "overlong": score["overlong"],
        "accuracy_normalized": right,
    }


def _prime(score: Score) -> Any:
    return [bool(score["accuracy"]), bool(score["format"]), score["pred"]]


def _rlla(score: Score) -> Any:
    return {"score": score["overall"], "format_reward": score["format"], "accuracy_reward": score["calls"]}


ORIGINALS = {
    "verl.gsm8k": Original("gsm8k", "verl", _number),
    "verl.math_reward": Original("math", "verl", _number),
    "verl.math_dapo": Original("math_dapo", "verl", _dapo),
    "verl.math_verify": Original("math", "math_verify", _number),
    "verl.prime_math": Original("prime_math", "verl", _prime),
    "verl.geo3k": Original("geo3k", "verl", _number, renamed={"format_score": "format_weight"}),
    "verl.search_em": Original("search_em", "verl", _number),
    "verl.search_subem": Original("search_em", "verl", _number),
    "verl.rlla": Original("rlla", "verl", _rlla),
    "verl.prime_code": Original("code", "verl", _number),
    "verl.sandbox_fusion": Original("code", "sandbox_fusion", _number),
    "easyr1.math": Original("geo3k", "easyr1", _easyr1),
    "easyr1.r1v": Original("r1v", "easyr1", _easyr1),
    "easyr1.android_gui": Original("android_gui", "easyr1", _easyr1),
    "easyr1.dapo": Original("math_dapo", "easyr1", _easyr1_dapo),
    "vppo.math": Original("geo3k", "vppo", _easyr1),
    "vppo.math_wo_format": Original("geo3k", "vppo", lambda s: {"overall": s["accuracy"], "accuracy": s["accuracy"]}),
    "vppo.r1v": Original("r1v", "vppo", _easyr1),
    "or1.deepscaler_math": Original("math", "deepscaler", _number),
    "or1.hf_math_verify": Original("math", "or1", _number, lambda t: t if isinstance(t, list) else [str(t)]),
    "math_verify.verify": Original("math", "math_verify", _number),
    "r1v.accuracy": Original("r1v", "r1v", lambda s: s["accuracy"]),
    "search_r1.qa_em": Original("search_em", "search_r1", _number),
    "vqa.vqa_accuracy": Original("vqa", "vqa", lambda s: round(100 * s["overall"], 2)),
}
OPTIONS = {"verl.search_subem": {"substring": True}}
CODE = ("inputs", "assert_case", "import_prefix", "question_id")


def results(golden: dict[str, Any]) -> Iterator[Result]:
    """What came of every case."""
    for case in golden["cases"]:
        yield check(case)


def check(case: Case) -> Result:
    """Score a case and compare it with the original's result."""
    name = f"{case['system']}.{case['scorer']}"
    if name == "math_verify.parse":
        return _check_parse(case)
    original = _original(name, case)
    if original is None:
        return Result(case["id"], math.nan, "NOT COVERED", passed=False)
    try:
        ours = original.read(_score(original, case, "whet"))
    except UserError as error:
        return _refused(case, error)
    if "raises" in case:
        return Result(case["id"], math.nan, f"the original raises: {case['raises']}", passed=True)
    theirs, label = case["result"], case["correct"]
    try:
        matched = original.read(_score(original, case, original.match))
    except UserError as error:
        return Result(case["id"], math.nan, f"NOT COVERED: {error}", passed=False)
    distance, gap = _distance(theirs, matched), _distance(theirs, ours)
    reason = _reason(theirs, ours, label) if gap > TOLERANCE else ""
    refuses = _paid(theirs) and not _paid(matched) and (label is False or (original.scorer == "code" and not label))
    if distance > TOLERANCE and not refuses:
        return Result(
            case["id"], distance, f"FAILS: {original.match} gives {_short(theirs)}, we {_short(matched)}", False
        )
    if reason.startswith("FAILS"):
        return Result(case["id"], gap, reason, False)
    if distance > TOLERANCE:
        return Result(case["id"], distance, "differs on purpose: the original pays for nothing", True)
    return Result(case["id"], 0.0, f"ok; whet differs on purpose: {reason}" if reason else "ok", True)


def _original(name: str, case: Case) -> Original | None:
    if name == "verl.default_compute_score":
        scorer = SCORERS.for_source(case["data_source"])
        reads = {"math_dapo": _dapo}
        return Original(scorer, "verl", reads.get(scorer, _number)) if scorer else _unknown_source(case)
    if name == "or1.compute_score":
        truth = decoded(case["ground_truth"])
        is_code = isinstance(truth, dict) and any(key in truth for key in CODE)
        return Original("code" if is_code else "math", "or1", _number)
    return ORIGINALS.get(name)


def _unknown_source(case: Case) -> Original:
    """An original by which our own dispatch is asked, so that it refuses as the original does."""
    return Original("", "verl", _number)


def _score(original: Original, case: Case, match: str) -> Score:
    if not original.scorer:
        return score_row({**case, "data_source": case["data_source"]}, {})
    options = {**OPTIONS.get(f"{case['system']}.{case['scorer']}", {}), **case["extra"]}
    options = {(original.renamed or {}).get(name, name): value for name, value in options.items()}
    scorer = SCORERS.find(original.scorer)
    truth = case["ground_truth"] if match == "whet" else original.truth(case["ground_truth"])
    return scorer.score(case["response"], truth, match=match, **options)


def _refused(case: Case, error: UserError) -> Result:
    if "raises" in case:
        return Result(case["id"], math.nan, f"the original raises: {case['raises']}; whet refuses", passed=True)
    return Result(case["id"], math.nan, f"NOT COVERED: {error}", passed=False)


def _check_parse(case: Case) -> Result:
    try:
        ours = maths().call("parsed", case["response"])
    except MathsError as error:
        return Result(case["id"], math.nan, f"FAILS: {error}", passed=False)
    same = ours == case["result"]
    return Result(case["id"], 0.0 if same else math.inf, "ok" if same else f"FAILS: we read {ours}", same)


def _reason(theirs: Any, ours: Any, label: bool | None) -> str:
    """Why we differ from an original; FAILS where a label contradicts us."""
    paid, original_paid = _paid(ours), _paid(theirs)
    if paid == original_paid:
        return "the same answer, reported in another form"
    if label is None:
        return f"{'we count the answer' if paid else 'we do not count the answer'}; its form is open to argument"
    if label is not paid:
        return f"FAILS: the answer is {'right' if label else 'wrong'}, and we say otherwise"
    return "the original misses a right answer" if paid else "the original pays for a wrong answer"


def _paid(result: Any) -> bool:
    """True if the answer counted as right; a format term alone is no such thing."""
    if isinstance(result, list):
        return bool(result[0])
    if isinstance(result, dict):
        value = result.get("acc", result.get("accuracy", result.get("overall", result.get("score"))))
        return float(value) > 0
    return float(result) > 0.85


def _distance(theirs: Any, ours: Any) -> float:
    """The largest difference of numbers; infinite where texts or forms differ."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return max((_distance(value, ours.get(name)) for name, value in theirs.items()), default=0.0)
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        return max((_distance(a, b) for a, b in zip(theirs, ours)), default=0.0)
    if isinstance(theirs, (bool, int, float)) and isinstance(ours, (bool, int, float)):
        return abs(float(theirs) - float(ours))
    return 0.0 if theirs == ours else math.inf


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:97] + "..."
