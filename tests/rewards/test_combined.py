"""Several rewards as one: the weighted sum, the scores of each part, and parts that fail."""

from __future__ import annotations

import pytest

from whet.config.schema.reward import RewardConfig
from whet.errors import UserError
from whet.rewards.choice import with_match
from whet.rewards.scorer import RewardScorer
from whet.types import Prompt, Sample

FILE = """
def extra(response, answer, bonus=0.0):
    if response == "raise": raise ValueError("no")
    return {"overall": 2.0 + bonus, "accuracy": 0.25}

def many(reward_inputs):
    return [len(each["response"]) for each in reward_inputs]

def main(response, answer):
    return 7.0

def bad(response, answer):
    return "text"
"""


@pytest.fixture
def score(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(FILE)

    def run(combine: dict, *texts: str, **changes: object) -> list[Sample]:
        prompt = Prompt("row:0", [1], "q", "4", {"data_source": "openai/gsm8k"})
        found = [Sample.written(prompt, [1], [0.0], "stop", text=text) for text in texts]
        with RewardScorer("", RewardConfig(num_cpus=1, combine=combine, fallback=-9.0, **changes)) as scorer:
            scorer.check([prompt])
            scorer.score(found)
        return found

    return run


def test_the_sum_and_the_score_of_each_part(score):
    (one,) = score({"gsm8k": 1.0, "mine.py:extra": 0.5, "mine.py": -1}, "#### 4")
    assert one.scores["overall"] == 1.0 + 0.5 * 2.0 - 7.0
    assert (one.scores["gsm8k"], one.scores["extra"], one.scores["mine"]) == (1.0, 2.0, 7.0)
    assert (one.scores["accuracy"], one.scores["extra_accuracy"]) == (1.0, 0.25)


def test_parts_may_take_batches_and_rows_may_choose_their_scorer(score):
    first, second = score({"data_source": 2.0, "mine.py:many": 0.1}, "#### 4", "#### 55")
    assert first.scores["overall"] == pytest.approx(2.0 + 0.6)
    assert second.scores["overall"] == pytest.approx(0.7)


def test_options_stand_under_the_part(score):
    (one,) = score({"mine.py:extra": 1.0}, "x", reward_function_kwargs={"mine.py:extra": {"bonus": 1.5}})
    assert one.scores["overall"] == 3.5


def test_a_part_that_fails_fails_its_sample_only(score):
    bad, good = score({"mine.py:many": 1.0, "mine.py:extra": 1.0}, "raise", "fine")
    assert (bad.scores, bad.failure) == ({"overall": -9.0}, "raised")
    assert good.scores["overall"] == 6.0


@pytest.mark.parametrize(
    ("combine", "changes", "named"),
    [
        ({"gsm9k": 1.0}, {}, "did you mean gsm8k"),
        ({"gsm8k": "much"}, {}, r"worker.reward.combine.gsm8k='much'"),
        ({"gsm8k": float("nan")}, {}, "weight"),
        ({"gsm8k": 1.0}, {"reward_function_kwargs": {"method": "flexible"}}, r"no part method"),
        ({"mine.py:nobody": 1.0}, {}, r"worker.reward.combine.nobody: .*no function nobody"),
        ({"mine.py:extra": 1.0}, {"reward_function_kwargs": {"mine.py:extra": {"bonsu": 1}}}, "did you mean bonus"),
        ({"mine.py:bad": 1.0}, {}, r"worker.reward.combine.*bad: the score must be a number"),
    ],
)
def test_mistakes_are_named_before_work(score, combine, changes, named):
    with pytest.raises(UserError, match=named):
        score(combine, "x", **changes)


def test_match_reaches_the_parts_that_know_it():
    config = RewardConfig(combine={"gsm8k": 1.0, "format": 0.1, "a.py:f": 1}, reward_function_kwargs={"format": {}})
    assert with_match("", config, "verl") == {"gsm8k": {"match": "verl"}, "format": {}}
    assert with_match("", RewardConfig(url="http://a"), "verl") == {}
