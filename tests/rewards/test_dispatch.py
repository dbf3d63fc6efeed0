"""Scorers as reward functions: by name, by each row's data source, in worker processes, with their options."""

# ruff: noqa: E501

from __future__ import annotations

import re
from pathlib import Path

import pytest

from whet.config.schema.reward import RewardConfig
from whet.errors import UserError
from whet.rewards.dispatch import knows_match, name_for
from whet.rewards.registry import SCORERS
from whet.rewards.scorer import RewardScorer
from whet.types import Prompt, Sample

ROOT = Path(__file__).parents[2]
SOURCES = {
    "openai/gsm8k": "gsm8k", "lighteval/MATH": "math", "DigitalLearningGmbH/MATH-lighteval": "math", "HuggingFaceH4/MATH-500": "math", "math_dapo": "math_dapo",
    "math": "math_dapo", "math_dapo_reasoning": "math_dapo", "aime2024": "math_dapo", "AIME24": "math_dapo", "numina_aops_forum": "prime_math", "numina_olympiads": "prime_math",
    "codecontests": "code", "apps": "code", "codeforces": "code", "taco": "code", "hiyouga/geometry3k": "geo3k", "searchR1_nq": "search_em", "searchR1_bamboogle": "search_em",
    "test-math-aime24": "math", "gsm8k": "gsm8k",
}  # fmt: skip


def row(uid: str, response: str, truth: object, **columns: object) -> Sample:
    prompt = Prompt(uid, [1], "question", truth, dict(columns))
    return Sample.written(prompt, [1, 2], [0.0, 0.0], "stop", text=response)


@pytest.mark.parametrize(("source", "name"), SOURCES.items())
def test_a_data_source_has_its_scorer(source, name):
    assert name_for(source) == name


def test_no_data_source_has_two_scorers():
    claimed = [source for name in SCORERS.names for source in SCORERS.find(name).data_sources]
    assert len(claimed) == len(set(claimed))
    for source in SOURCES:
        assert sum(SCORERS.find(name).is_for(source) for name in SCORERS.names) == 1, source


@pytest.mark.parametrize("source", [None, "", 3, "unknown/set"])
def test_an_unknown_source_is_an_error_that_lists_the_known_ones(source):
    with pytest.raises(UserError, match=r"reward_function") as caught:
        name_for(source)
    if source == "unknown/set":
        assert "openai/gsm8k" in str(caught.value)


def test_rows_are_scored_by_their_data_source():
    samples = [
        row("a", "#### 4", "4", data_source="openai/gsm8k"),
        row("b", "Answer: 5", "4", data_source="math_dapo"),
        row("c", "<answer>x</answer>", {"target": ["x"]}, data_source="searchR1_nq"),
    ]
    with RewardScorer("", RewardConfig(num_cpus=1)) as scorer:
        scorer.check([sample.prompt for sample in samples])
        assert scorer.score(samples)["reward/failed"] == 0
    assert [sample.scores["overall"] for sample in samples] == [1.0, -1.0, 1.0]


def test_a_row_of_no_known_source_is_refused_before_work():
    with RewardScorer("", RewardConfig(num_cpus=1)) as scorer, pytest.raises(UserError, match=r"row b: .*'mine'"):
        scorer.check([Prompt("b", [1], "q", "4", {"data_source": "mine"})])


def test_a_scorer_is_chosen_by_name_with_its_options():
    config = RewardConfig(num_cpus=1, reward_function_kwargs={"method": "flexible", "score": 2.0})
    sample = row("a", "that makes 72 apples", ["72"])
    with RewardScorer("gsm8k", config) as scorer:
        scorer.score([sample])
    assert sample.scores["overall"] == 2.0


@pytest.mark.parametrize(("spec", "options", "named"), [
    ("gsm9k", {}, "did you mean gsm8k"), ("gsm8k", {"methd": "strict"}, "did you mean method"), ("gsm8k", {"method": "foo"}, "method=foo: gsm8k knows strict and flexible"), ("length", {}, "needs target_length"), ("", {"nonsense": 1}, "nonsense"), ("vqa", {"form": 1}, "form"),
])  # fmt: skip
def test_a_wrong_name_or_option_is_refused(spec, options, named):
    with (
        pytest.raises(UserError, match=named),
        RewardScorer(spec, RewardConfig(num_cpus=1, reward_function_kwargs=options)) as scorer,
    ):
        scorer.check([Prompt("a", [1], "q", "4", {"data_source": "openai/gsm8k"})])


def test_match_reaches_the_scorers_that_know_it():
    sample, other = row("a", "#### $72", "72", data_source="openai/gsm8k"), row("b", "3", "3", data_source="vqa")
    config = RewardConfig(num_cpus=1, reward_function_kwargs={"match": "verl"})
    with RewardScorer("", config) as scorer:
        scorer.score([sample, other])
    assert sample.scores["overall"] == 0.0  # verl reads no dollar sign
    assert other.scores["overall"] == 1.0
    assert knows_match("gsm8k", "verl")
    assert not knows_match("gsm8k", "or1")
    assert knows_match("", "or1")


def test_the_table_of_the_docs_is_the_registry():
    text = (ROOT / "docs" / "rewards.md").read_text(encoding="utf-8")
    section = text.partition("\n## Scorers\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", section, re.MULTILINE))
    assert {name: SCORERS.find(name).summary for name in SCORERS.names} == rows


def test_a_missing_package_is_named_before_work(monkeypatch):
    monkeypatch.setattr("whet.rewards.answers.process.NEEDED", ("math_verify_of_nobody",))
    with pytest.raises(UserError, match=r"scorer math needs math_verify_of_nobody.*whet\[math\]"):
        RewardScorer("math", RewardConfig(num_cpus=1))
    rows = [Prompt("a", [1], "q", "4", {"data_source": "lighteval/MATH"})]
    with RewardScorer("", RewardConfig(num_cpus=1)) as scorer, pytest.raises(UserError, match=r"row a: .*scorer math"):
        scorer.check(rows)
