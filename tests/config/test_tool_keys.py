"""Keys of tools, and verl's names of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from whet.config import check_files, load_config
from whet.errors import UserError

VERL = "actor_rollout_ref.rollout.multi_turn."


def test_verls_names_set_the_keys_of_tools(tmp_path: Path) -> None:
    for name in ("tools.yaml", "user.yaml"):
        (tmp_path / name).write_text("tools: []\n")
    config = load_config(
        [
            f"{VERL}enable=true",
            f"{VERL}tool_config_path={tmp_path}/tools.yaml",
            f"{VERL}interaction_config_path={tmp_path}/user.yaml",
            f"{VERL}max_assistant_turns=5",
            f"{VERL}max_parallel_calls=2",
            f"{VERL}max_tool_response_length=256",
            f"{VERL}tool_response_truncate_side=left",
            f"{VERL}format=hermes",
        ]
    )
    rollout = config.worker.rollout
    assert rollout.tools == [f"{tmp_path}/tools.yaml"]
    assert rollout.interaction == f"{tmp_path}/user.yaml"
    assert (rollout.max_turns, rollout.max_parallel_calls, rollout.max_tool_response_length) == (5, 2, 256)
    assert (rollout.tool_response_truncate_side, rollout.tool_format) == ("left", "hermes")
    assert rollout.plays_episodes


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([f"{VERL}enable=true"], "set worker.rollout.tools, interaction or env"),
        (["worker.rollout.tools=[nowhere.yaml]"], "worker.rollout.tools=nowhere.yaml"),
        (["worker.rollout.tools=[nowhere.json]"], "worker.rollout.tools=nowhere.json"),
        (["worker.rollout.tools=[calculator]", "worker.rollout.env=single_turn"], "exclude each other"),
        (["worker.rollout.max_parallel_calls=0"], "must be at least 1"),
        (["worker.rollout.tool_response_truncate_side=both"], "middle"),
        ([f"{VERL}max_user_turns=3"], "worker.rollout.max_turns"),
    ],
)
def test_settings_that_cannot_be(arguments: list[str], words: str) -> None:
    with pytest.raises(UserError) as error:
        check_files(load_config(arguments))
    assert words in " ".join(str(error.value).split())
