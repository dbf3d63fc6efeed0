"""verifiers: rollouts of its environments turn by turn, tools, rubrics, rows, and environments that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from whet.data.files import read_rows
from whet.envs.loading import env_factory
from whet.envs.protocol import Action
from whet.errors import UserError
from whet.types import Prompt

pytest.importorskip("verifiers.envs.multiturn_env", reason="needs whet[verifiers]")

ENVIRONMENTS = '''
import verifiers as vf
from datasets import Dataset

ROWS = Dataset.from_list([{"question": f"Double {n}", "answer": str(2 * n)} for n in range(1, 6)])


class Coach(vf.MultiTurnEnv):
    """Gives a second chance."""

    async def env_response(self, messages, state, **kwargs):
        if "boom" in messages[-1]["content"]:
            raise RuntimeError("kaboom")
        if "odd" in messages[-1]["content"]:
            raise vf.Error("odd")
        return [{"role": "user", "content": "Try again"}]

    @vf.stop
    async def right(self, state):
        turns = state["trajectory"]
        return bool(turns) and turns[-1]["completion"][-1]["content"] == state["answer"]


async def exact(completion, answer):
    return float(completion[-1]["content"] == answer)


def coach(turns=3):
    return Coach(dataset=ROWS, rubric=vf.Rubric(funcs=[exact]), max_turns=turns, system_prompt="Be brief.")


def double(n: int) -> int:
    """Double a number.

    Args:
        n: the number
    """
    return 2 * n


def tools():
    return vf.ToolEnv(dataset=ROWS, tools=[double], rubric=vf.Rubric(funcs=[exact]))


def single():
    return vf.SingleTurnEnv(dataset=ROWS, rubric=vf.Rubric(funcs=[exact]))


class Forgetful(Coach):
    """Begins another conversation at each turn."""

    async def get_prompt_messages(self, state):
        return state["prompt"] if not state["trajectory"] else [vf.UserMessage(content="Who are you?")]


def forgetful():
    return Forgetful(dataset=ROWS, rubric=vf.Rubric(funcs=[exact]))


def group():
    return vf.SingleTurnEnv(dataset=ROWS, rubric=vf.Rubric(funcs=[lambda completions: [0.0 for _ in completions]]))


def nothing():
    return 5
'''
ROW = Prompt("x", [], "")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("verifiers") / "theirs.py"
    path.write_text(ENVIRONMENTS)
    return path


def play(name: str, check: Callable[[Any], Awaitable[None]], **options: Any) -> None:
    """Make an environment in an event loop, as episodes do, and play."""

    async def run() -> None:
        env: Any = env_factory(name, options=options)()
        try:
            await check(env)
        finally:
            await env.close()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_second_chance_is_taken(file: Path) -> None:
    async def check(env: Any) -> None:
        asked = await env.reset(ROW, 2)
        assert [message["role"] for message in asked] == ["system", "user"]
        assert asked[-1]["content"] == "Double 3"
        observation, reward, done, info = await env.step(Action("7"))
        assert observation == [{"role": "user", "content": "Try again"}]
        assert (reward, done) == (0.0, False)
        _, reward, done, info = await env.step(Action("6"))
        assert (reward, done, info["accuracy"], info["end"]) == (1.0, True, 1.0, "right")
        assert info["exact"] == 1.0
        assert info["num_turns"] == 2

    play(f"verifiers:{file}:coach", check)


def test_its_own_limit_of_turns_ends_it_with_a_score(file: Path) -> None:
    async def check(env: Any) -> None:
        await env.reset(ROW, 0)
        assert not (await env.step(Action("1")))[2]
        _, reward, done, info = await env.step(Action("1"))
        assert (reward, done, info["accuracy"], info["end"]) == (0.0, True, 0.0, "max_turns_reached")

    play(f"verifiers:{file}:coach", check, turns=2)


def test_tools_are_called(file: Path) -> None:
    async def check(env: Any) -> None:
        await env.reset(ROW, 3)
        assert [tool["function"]["name"] for tool in env.tools] == ["double"]
        call = '<tool_call>\n{"name": "double", "arguments": {"n": 4}}\n</tool_call>'
        observation, _, done, info = await env.step(Action(call))
        assert not done
        assert [(each["role"], each["content"]) for each in observation] == [("tool", "8")]
        assert info["message"]["tool_calls"][0]["function"] == {"name": "double", "arguments": {"n": 4}}
        _, reward, done, info = await env.step(Action("8"))
        assert (reward, done, info["end"], info["double_calls"]) == (1.0, True, "no_tools_called", 1.0)

    play(f"verifiers:{file}:tools", check)


def test_rows_are_its_examples_and_are_played(file: Path) -> None:
    rows = read_rows(f"verifiers:{file}:single@2-3")
    assert [row["answer"] for row in rows] == ["4", "6"]
    assert rows[0]["prompt"][-1] == {"role": "user", "content": "Double 2"}

    async def check(env: Any) -> None:
        asked = await env.reset(Prompt("x", [], "", extra=rows[1]), 0)
        assert asked[-1]["content"] == "Double 3"
        _, reward, done, _ = await env.step(Action("6"))
        assert (reward, done) == (1.0, True)

    play(f"verifiers:{file}:single", check)
    with pytest.raises(UserError, match="row 9 is behind the last of 5 examples"):
        read_rows(f"verifiers:{file}:single@9")


@pytest.mark.parametrize(
    ("name", "turn", "message"),
    [
        ("coach", "boom", "kaboom"),
        ("coach", "odd", "the environment failed"),
        ("forgetful", "1", "another conversation than the one that it began"),
    ],
)
def test_an_environment_that_fails_says_why(file: Path, name: str, turn: str, message: str) -> None:
    async def check(env: Any) -> None:
        await env.reset(ROW, 0)
        with pytest.raises(RuntimeError, match=message):
            await env.step(Action(turn))

    play(f"verifiers:{file}:{name}", check)


def test_closing_ends_what_is_under_way(file: Path) -> None:
    async def run() -> None:
        env: Any = env_factory(f"verifiers:{file}:coach")()
        await env.reset(ROW, 0)
        await env.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("", "name an environment"),
        (":no-such-environment", "verifiers cannot load 'no-such-environment'"),
        (":FILE:missing", "missing"),
        (":FILE:nothing", "is a int"),
        (":FILE:group", "compares the rollouts of a group"),
    ],
)
def test_what_cannot_be_played_is_refused(file: Path, argument: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        env_factory("verifiers" + argument.replace("FILE", str(file)))
