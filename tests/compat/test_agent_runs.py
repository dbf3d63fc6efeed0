"""verl commands with tools and a simulated user run for two steps, and their keys are those of whet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_translate import ROLLOUT, made

from whet.cli import main

TURNS = f"{ROLLOUT}.multi_turn"
CLASSES = """
class Response:
    def __init__(self, text): self.text, self.image = text, None
class Adder:
    def __init__(self, config, schema): self.config = config
    async def create(self, instance_id=None, **kwargs): return instance_id, Response("")
    async def execute(self, instance_id, parameters, **kwargs): return Response("3"), 0.25, {}
    async def release(self, instance_id, **kwargs): pass
class AskerInteraction:
    def __init__(self, config): self.turns = {}
    async def start_interaction(self, instance_id=None, **kwargs): self.turns[instance_id] = kwargs["truth"]
    async def generate_response(self, instance_id, messages, **kwargs):
        return len(messages) > 3, "again", 0.5, {}
    async def finalize_interaction(self, instance_id=None, **kwargs): del self.turns[instance_id]
class Never(AskerInteraction):
    async def start_interaction(self, instance_id=None, **kwargs): raise RuntimeError("not this one")
"""
TOOLS = """
tools:
  - class_name: whet_verl_run.Adder
    config: {type: native}
    tool_schema:
      type: function
      function: {name: add, description: adds, parameters: {type: object, properties: {x: {type: integer}}}}
"""
USERS = """
interaction:
  - {class_name: whet_verl_run.AskerInteraction, config: {}}
  - {name: never, class_name: whet_verl_run.Never, config: {}}
"""


def test_a_command_with_tools_and_a_simulated_user_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quickstart: Path
) -> None:
    (tmp_path / "whet_verl_run.py").write_text(CLASSES)
    (tmp_path / "tools.yaml").write_text(TOOLS)
    (tmp_path / "users.yaml").write_text(USERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    rows: list[dict[str, Any]] = [
        {
            "data_source": "openai/gsm8k",
            "prompt": [{"role": "user", "content": f"{i} + {i + 1} ="}],
            "reward_model": {"style": "rule", "ground_truth": str(2 * i + 1)},
            "agent_name": "tool_agent",
            "extra_info": {"index": i, "interaction_kwargs": {"name": "asker", "truth": str(i)}},
        }
        for i in range(8)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    arguments = [
        *(f"data.{name}_files={tmp_path}/rows.parquet" for name in ("train", "val")),
        *("data.train_batch_size=4", "data.max_prompt_length=400", "data.max_response_length=96"),
        *("actor_rollout_ref.model.path=whet/quickstart", "actor_rollout_ref.actor.ppo_mini_batch_size=2"),
        *(f"{ROLLOUT}.name=vllm", f"{ROLLOUT}.n=2", f"{ROLLOUT}.agent.default_agent_loop=tool_agent"),
        *(f"{TURNS}.enable=True", f"{TURNS}.format=hermes", f"{TURNS}.max_user_turns=2"),
        *(f"{TURNS}.tool_config_path={tmp_path}/tools.yaml", f"{TURNS}.max_tool_response_length=99"),
        *(f"{TURNS}.interaction_config_path={tmp_path}/users.yaml", f"{TURNS}.max_parallel_calls=2"),
        *("algorithm.adv_estimator=grpo", "trainer.n_gpus_per_node=1", "trainer.total_training_steps=2"),
        *("trainer.logger=[console]", f"trainer.default_local_dir={tmp_path}/run", "trainer.val_before_train=False"),
    ]
    assert main(["as", "--entry", "verl", "verl.trainer.main_ppo", "--", *arguments]) == 0
    steps = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    trained = [step for step in steps if "turns/mean" in step]
    assert len(trained) == 2
    for step in trained:
        assert step["env/failed"] == 0
        assert 1 < step["turns/mean"] <= 3


@pytest.mark.parametrize(
    ("given", "turns"),
    [
        (["max_assistant_turns=5"], 5),
        (["max_user_turns=5"], 6),
        (["max_assistant_turns=5", "max_user_turns=2"], 3),
    ],
)
def test_limits_and_defaults_of_tools(given: list[str], turns: int) -> None:
    found = made(f"{TURNS}.tool_config_path=tools.yaml", *(f"{TURNS}.{each}" for each in given))
    assert found.refused == []
    values = {key: setting.value for key, setting in found.settings.items()}
    assert values["worker.rollout.max_turns"] == turns
    assert values["worker.rollout.tools"] == ["tools.yaml"]
    # verl's own, where the command is silent.
    assert values["worker.rollout.max_parallel_calls"] == 1
    assert values["worker.rollout.max_tool_response_length"] == 256


def test_files_of_functions_are_refused_with_advice() -> None:
    (refused,) = made(f"{TURNS}.function_tool_path=tools.py").refused
    assert "worker.rollout.tools=[path.py:function]" in str(refused)


LOOP = f"{ROLLOUT}.agent.default_agent_loop"
LOOPS = f"{ROLLOUT}.agent.agent_loop_config_path"


@pytest.mark.parametrize(
    ("text", "loop", "said"),
    [
        ("- {name: mine, _target_: verl.experimental.agent_loop.tool_agent_loop.ToolAgentLoop}", "mine", None),
        ("- {name: mine, _target_: my_package.loops.Research}", "tool_agent", None),
        ("- {name: mine, _target_: my_package.loops.Research}", "mine", "my_package.loops.Research"),
        ("- {name: mine, _target_: my_package.ToolAgentLoop}", "mine", "my_package.ToolAgentLoop"),
        ("name: mine", "mine", "no list of"),
        (None, "mine", "no list of"),
    ],
)
def test_loops_by_name(tmp_path: Path, text: str | None, loop: str, said: str | None) -> None:
    file = tmp_path / "loops.yaml"
    if text is not None:
        file.write_text(text)
    found = made(f"{LOOPS}={file}", f"{LOOP}={loop}", f"{TURNS}.tool_config_path=tools.yaml")
    if said is None:
        assert found.refused == []
        assert found.settings["worker.rollout.tools"].value == ["tools.yaml"]
    else:
        (refused,) = found.refused
        assert said in str(refused)


def test_an_unknown_loop_is_named() -> None:
    (refused,) = made(f"{LOOP}=mine").refused
    assert "mine" in str(refused)
    assert "worker.rollout.env" in str(refused)
