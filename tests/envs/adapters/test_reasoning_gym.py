"""reasoning-gym: rows by name, episodes with the package's own scorers, and names that do not exist."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from whet.data.files import read_rows
from whet.envs.loading import env_factory
from whet.envs.protocol import Action
from whet.errors import UserError
from whet.types import Prompt

pytestmark = pytest.mark.skipif(find_spec("reasoning_gym") is None, reason="needs whet[reasoning_gym]")


def test_rows_are_the_same_each_time_and_ranges_share_none() -> None:
    rows = read_rows("reasoning_gym:chain_sum@20")
    assert rows == read_rows("reasoning_gym:chain_sum@20")
    many = read_rows("reasoning_gym:chain_sum")
    assert len(many) == 1000
    assert many[0]["prompt"] == rows[0]["prompt"]
    assert rows[10:] == read_rows("reasoning_gym:chain_sum@11-20")
    assert rows[0]["prompt"] != rows[1]["prompt"]
    assert len(read_rows("reasoning_gym:chain_sum@3,reasoning_gym:countdown@4")) == 7


@pytest.mark.parametrize("task", ["chain_sum", "countdown", "spell_backward"])
def test_the_reference_answer_of_a_row_earns_all_and_another_does_not(task: str) -> None:
    (row,) = read_rows(f"reasoning_gym:{task}@5-5")
    for text, right in (
        (row["answer"], True),
        (f"<think>7 7</think> <answer>{row['answer']}</answer>", True),
        ("?", False),
    ):
        env = env_factory("reasoning_gym")()
        assert env.reset(Prompt("x", [], "", extra=row), seed=3) is None  # type: ignore[call-arg]
        _, reward, done, info = env.step(Action(text))
        assert done
        assert (reward == 1) == right
        assert info["accuracy"] == right


def test_other_rows_are_given_a_task_by_the_seed() -> None:
    prompt = Prompt("x", [], "", messages=[{"role": "system", "content": "s"}, {"role": "user", "content": "u"}])
    first, again, other = (
        env_factory("reasoning_gym:chain_sum")().reset(prompt, seed)  # type: ignore[call-arg]
        for seed in (1, 1, 2)
    )
    assert first == again != other
    assert [message["role"] for message in first] == ["system", "user"]


@pytest.mark.parametrize("answer", ["nan", "nan + 2i", "1+nanj"])
def test_no_number_is_near_every_number(answer: str) -> None:
    env = env_factory("reasoning_gym:complex_arithmetic")()
    env.reset(Prompt("x", [], ""), 1)  # type: ignore[call-arg]
    _, reward, _, info = env.step(Action(answer))
    assert (reward, info["refused"]) == (0.0, 1)


def test_a_scorer_that_raises_gives_nothing() -> None:
    env = env_factory("reasoning_gym:prime_factorization")()
    env.reset(Prompt("x", [], ""), 1)  # type: ignore[call-arg]
    _, reward, _, info = env.step(Action("a word"))
    assert reward == 0
    assert info["scorer_raised"] == 1


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("reasoning_gym:countdwon", {}, "did you mean countdown"),
        ("reasoning_gym:countdown", {"min_number": 3}, "did you mean min_numbers"),
        ("reasoning_gym:countdown", {"min_numbers": -3}, "refuses its settings"),
        ("reasoning_gym:composite", {}, "name several data sets"),
        ("reasoning_gym", {"seed": 3}, "need a task"),
    ],
)
def test_names_and_settings_that_do_not_exist(name: str, options: dict[str, int], said: str) -> None:
    with pytest.raises(UserError, match=f"^worker.rollout.env={name}: .*{said}"):
        env_factory(name, options=options)


@pytest.mark.parametrize("spec", ["@0", "@5-2", "@", "@many"])
def test_a_number_of_rows_must_be_one(spec: str) -> None:
    with pytest.raises(UserError, match="say how many rows to make"):
        read_rows(f"reasoning_gym:countdown{spec}")


@pytest.mark.slow
def test_every_task_is_played_by_name() -> None:
    from reasoning_gym.factory import DATASETS

    below = []
    for task in sorted(set(DATASETS) - {"composite"}):
        (row,) = read_rows(f"reasoning_gym:{task}@2-2")
        assert row["prompt"].strip(), task
        env = env_factory(f"reasoning_gym:{task}")()
        assert env.reset(Prompt("x", [], "", extra=row), seed=3) is None  # type: ignore[call-arg]
        _, reward, done, info = env.step(Action(f"<answer>{row['answer']}</answer>"))
        assert done, task
        assert 0 <= reward <= 1, task
        assert info["scorer_raised"] == 0 or row["answer"] is None, task
        if row["answer"] is not None and reward < 1:
            below.append(task)
    assert len(below) <= 3, below  # tasks whose scorer does not take the reference answer as it is written


@pytest.mark.parametrize("task", ["countdown", "string_insertion", "simple_integration", "n_queens", "coin_flip"])
def test_answers_are_not_run_as_programs(task: str, tmp_path: Path) -> None:
    """Scorers of the package pass answers to `eval` and to sympy, which run them in the trainer."""
    env = env_factory(f"reasoning_gym:{task}")()
    env.reset(Prompt("x", [], ""), 1)  # type: ignore[call-arg]
    for answer in (f"open({str(tmp_path / 'ran')!r}, 'w')", "1e9999999999"):
        _, reward, _, info = env.step(Action(answer))
        assert reward == 0
        assert info["refused"] == (task != "coin_flip" or answer.startswith("1e"))
    assert not list(tmp_path.iterdir())
