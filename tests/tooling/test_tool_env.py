"""Episodes with tools: calls at the same time, errors as observations, and release whatever happens."""

from __future__ import annotations

import asyncio
import functools
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from whet.envs.protocol import Action
from whet.errors import UserError
from whet.tools.builtin.calculator import Calculator, compute
from whet.tools.builtin.search import Index
from whet.tools.env import Toolbox, ToolEnv, ToolLimits, cut
from whet.tools.functions import FunctionTool
from whet.tools.loading import load_tools
from whet.tools.protocol import PlainTool, ToolError, ToolResult, function_schema
from whet.types import Prompt


@dataclass
class Place:
    x: int
    y: int = 0


def plan(city: str, days: int = 3, kind: Literal["bus", "train"] = "train", at: Place | None = None) -> dict[str, Any]:
    """Plan a trip.

    Args:
        city: where to go,
            as a name
        days: how long
    """
    return {"city": city, "days": days, "x": at.x if at else None}


class Odd(PlainTool):
    """A tool that does what its argument says, and counts its samples."""

    name = "odd"
    schema = function_schema("odd", "", {"how": {"type": "string"}}, ["how"])

    def __init__(self) -> None:
        self.created: list[str] = []
        self.released: list[str] = []

    def create(self, sample_id: str, **row_kwargs: Any) -> None:
        self.created.append(sample_id)
        self.given = row_kwargs

    async def execute(self, sample_id: str, arguments: dict[str, Any]) -> Any:
        how = arguments["how"]
        if how == "raise":
            raise RuntimeError("broken")
        if how == "exit":
            raise SystemExit(2)  # as argparse does
        if how == "half":
            return ToolResult("a \ud800 b")
        if how == "wait":
            await asyncio.sleep(0.4)
        if how == "hang":
            await asyncio.sleep(60)
        return 3 if how == "wrong" else ToolResult(f"did {how}", reward=0.5)

    def release(self, sample_id: str) -> None:
        self.released.append(sample_id)


def slow(seconds: float) -> str:
    """Sleep in a thread."""
    time.sleep(seconds)
    return "slept"


def _call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def _prompt(**info: Any) -> Prompt:
    messages = [{"role": "user", "content": "q"}]
    return Prompt("rows:1", [1], "q", extra={"extra_info": info}, messages=messages)


def _steps(box: Toolbox, *turns: str, prompt: Prompt | None = None) -> list[Any]:
    async def play() -> list[Any]:
        env = ToolEnv(box)
        await env.reset(prompt or _prompt())
        results = [await env.step(Action(turn, turn=number)) for number, turn in enumerate(turns, 1)]
        await env.close()
        return results

    return asyncio.run(play())


@pytest.fixture
def box() -> Any:
    made = Toolbox([Odd(), FunctionTool(slow), FunctionTool(plan), Calculator()], ToolLimits(seconds=1.0))  # type: ignore[list-item]
    yield made
    made.close()


def test_schema_of_a_function() -> None:
    schema = FunctionTool(plan).schema["function"]
    assert schema["name"] == "plan"
    assert schema["description"] == "Plan a trip."
    assert schema["parameters"]["required"] == ["city"]
    made = schema["parameters"]["properties"]
    assert made["city"] == {"type": "string", "description": "where to go, as a name"}
    assert made["days"] == {"type": "integer", "description": "how long", "default": 3}
    assert made["kind"] == {"type": "string", "enum": ["bus", "train"], "default": "train"}
    assert made["at"]["anyOf"][0]["required"] == ["x"]


class Shout:
    def __call__(self, text: str) -> tuple[str, Any]:
        """Write it large."""
        return text.upper(), np.float32(0.5)


def test_objects_and_partials_are_functions() -> None:
    shout, planned = FunctionTool(Shout()), FunctionTool(functools.partial(plan, days=1))
    assert shout.name == shout.schema["function"]["name"] == "Shout"
    assert shout.execute("1", {"text": "hm"}) == ToolResult("HM", reward=0.5)
    assert planned.name == planned.schema["function"]["name"] == "plan"
    assert planned.schema["function"]["description"] == "Plan a trip."
    assert json.loads(planned.execute("1", {"city": "X"}).content)["days"] == 1


def test_functions_that_cannot_be_described() -> None:
    def untyped(x):  # type: ignore[no-untyped-def]
        return x

    def variadic(*x: int) -> int:
        return 1

    def strange(x: Path) -> int:
        return 1

    for function, match in ((untyped, "type hint"), (variadic, "ordinary"), (strange, "Path has no JSON schema")):
        with pytest.raises(UserError, match=match):
            FunctionTool(function)


def test_results_and_the_end(box: Toolbox) -> None:
    (added, reward, done, info), (_, _, over, last) = _steps(
        box, _call("plan", '{"city": "Bern", "at": {"x": 2}}') + _call("odd", '{"how": "well"}'), "The answer is 4."
    )
    assert [each["content"] for each in added] == ['{"city": "Bern", "days": 3, "x": 2}', "did well"]
    assert [each["role"] for each in added] == ["tool", "tool"]
    assert (reward, done, info["tool_calls"], info["tool_errors"]) == (0.5, False, 2, 0)
    assert info["message"]["tool_calls"][0]["id"] == added[0]["tool_call_id"]
    assert over
    assert last["end"] == "answer"


@pytest.mark.parametrize(
    ("turn", "words"),
    [
        (_call("nothing", "{}"), "there is no tool nothing"),
        (_call("plan", "{}"), "missing argument city"),
        (_call("plan", '{"city": "Bern", "days": "x"}'), "days must be integer"),
        (_call("plan", '{"city": "Bern", "color": 1}'), "unknown argument color"),
        (_call("plan", '{"city": "Bern", "kind": "ship"}'), "one of bus, train"),
        (_call("odd", '{"how": "raise"}'), "RuntimeError: broken"),
        (_call("odd", '{"how": "exit"}'), "Error: it raised SystemExit: 2"),
        (_call("odd", '{"how": "hang"}'), "took longer than 1 s"),
        (_call("slow", '{"seconds": 30}'), "took longer than 1 s"),
        (_call("odd", '{"how": "wrong"}'), "returned a int"),
        ("<tool_call>{</tool_call>", "not valid JSON"),
    ],
)
def test_errors_are_observations(box: Toolbox, turn: str, words: str) -> None:
    ((added, reward, done, info),) = _steps(box, turn)
    assert words in added[0]["content"]
    assert (reward, done, info["tool_errors"]) == (0.0, False, 1)


def test_halves_of_characters_are_replaced(box: Toolbox) -> None:
    (made, named) = _steps(box, _call("odd", '{"how": "half"}'), _call("\\ud800", "{}"))
    assert made[0][0]["content"] == "a ? b"
    assert "there is no tool ?" in named[0][0]["content"]


def test_calls_of_a_turn_run_at_the_same_time(box: Toolbox) -> None:
    start = time.perf_counter()
    turn = _call("odd", '{"how": "wait"}') * 4 + _call("slow", '{"seconds": 0.4}') * 4
    ((added, _, _, info),) = _steps(box, turn)
    assert time.perf_counter() - start < 1.6  # one behind the other they take 3.2 s
    assert info["tool_errors"] == 0
    assert [each["content"] for each in added] == ["did wait"] * 4 + ["slept"] * 4


def test_too_many_calls_are_refused() -> None:
    box = Toolbox([Odd()], ToolLimits(calls=2))  # type: ignore[list-item]
    ((added, _, _, info),) = _steps(box, _call("odd", '{"how": "well"}') * 3)
    box.close()
    assert [each["content"] for each in added] == ["did well"] * 2 + ["Error: more than 2 calls in one turn"]
    assert info["tool_errors"] == 1


def test_tools_are_released_and_take_the_rows_settings() -> None:
    odd = Odd()
    box = Toolbox([odd])  # type: ignore[list-item]
    row = _prompt(tools_kwargs={"odd": {"create_kwargs": {"truth": 4}}})
    _steps(box, _call("odd", '{"how": "raise"}'), prompt=row)
    assert odd.created == odd.released
    assert len(odd.created) == 1
    assert odd.given == {"truth": 4}
    _steps(box, "done", prompt=_prompt(tool_selection=["other"]))
    assert len(odd.created) == 1
    box.close()


def test_a_long_result_is_cut() -> None:
    assert cut("abcdef", 6, "middle") == "abcdef"
    assert cut("abcdefgh", 4, "left") == "(truncated)...efgh"
    assert cut("abcdefgh", 4, "right") == "abcd...(truncated)"
    assert cut("abcdefgh", 4, "middle") == "ab...(truncated)...gh"


@pytest.mark.parametrize(
    ("expression", "value"), [("(3+4)*12/5", 16.8), ("2^10", 1024), ("-7 // 2", -4), ("sqrt(16) + pi*0", 4.0)]
)
def test_calculator(expression: str, value: float) -> None:
    assert compute(expression) == value


@pytest.mark.parametrize(
    "expression",
    ["", "1/0", "9**9**9", "__import__('os')", "(1).real", "'a'*9", "x", "2**-0.5**-9**9", "[1]", "1" * 600],
)
def test_the_calculator_computes_nothing_else(expression: str) -> None:
    with pytest.raises(ToolError):
        compute(expression)


def test_search_ranks_by_bm25() -> None:
    index = Index(["the cat sat on the mat", "a dog and a cat", "birds", "the the the the"])
    assert [number for _, number in index.search("Cat on a mat", 2)] == [0, 1]
    assert index.search("zebra", 3) == []


VERL_TOOLS = """
class Response:
    def __init__(self, text): self.text, self.image = text, None
class Adder:
    def __init__(self, config, schema): self.config, self.name, self.log = config, schema.function.name, []
    async def create(self, instance_id=None, **kwargs):
        self.log.append(("create", kwargs)); return instance_id, Response("")
    async def execute(self, instance_id, parameters, **kwargs):
        return Response(str(parameters["x"] + self.config["plus"])), 0.25, {}
    async def release(self, instance_id, **kwargs): self.log.append(("release", instance_id))
class Asker:
    def __init__(self, config): self.turns = 0
    async def start_interaction(self, instance_id=None, **kwargs): self.kwargs = kwargs
    async def generate_response(self, instance_id, messages, **kwargs):
        self.turns += 1
        return messages[-1]["content"] == "4", "again", float(self.turns), {}
"""


def test_verls_tools_and_interaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "whet_verl_like.py").write_text(VERL_TOOLS)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "tools.yaml").write_text(
        "tools:\n  - class_name: whet_verl_like.Adder\n    config: {type: native, plus: 3}\n    tool_schema:\n"
        "      type: function\n      function: {name: add, description: adds, parameters: {type: object, properties: "
        "{x: {type: integer}}, required: [x]}}\n"
    )
    (tmp_path / "users.yaml").write_text("interaction:\n  - class_name: whet_verl_like.Asker\n    config: {}\n")
    from whet.tools.verl import load_interaction

    tools = load_tools([str(tmp_path / "tools.yaml")], {})
    asker = load_interaction(tmp_path / "users.yaml")
    box = Toolbox(tools, interaction=asker)
    row = _prompt(interaction_kwargs={"truth": 4}, tools_kwargs={"add": {"create_kwargs": {"a": 1}}})
    first, second, third = _steps(box, _call("add", '{"x": 4}'), "5", "4", prompt=row)
    box.close()
    assert (first[0][0]["content"], first[1]) == ("7", 0.25)
    assert second[:3] == ([{"role": "user", "content": "again"}], 1.0, False)
    assert third[2]
    log = tools[0]._tool.log  # type: ignore[attr-defined]
    assert log[0] == ("create", {"create_kwargs": {"a": 1}})
    assert [kind for kind, _ in log] == ["create", "release"]


def test_tools_that_cannot_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def f(x: int) -> int:\n    return x\nthree = 3\n")
    for names, match in (
        (["calculater"], "calculator"),
        ([f"{tmp_path}/mine.py:g"], "defines no g"),
        ([f"{tmp_path}/mine.py:three"], "found a int"),
        ([f"{tmp_path}/none.yaml"], "there is no file"),
        (["calculator", "calculator"], "two tools are called calculator"),
        (["search"], "cannot be made"),
    ):
        with pytest.raises(UserError, match=match):
            load_tools(names, {})
    assert load_tools([f"{tmp_path}/mine.py:f"], {})[0].name == "f"
