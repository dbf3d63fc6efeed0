"""MCP servers as tools: a real server over standard input and output and over HTTP, also one that dies."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from patience import eventually

from whet.envs.protocol import Action
from whet.errors import UserError
from whet.tools import mcp as mcp_tools
from whet.tools.env import Toolbox, ToolEnv, ToolLimits
from whet.tools.loading import close_tools, load_tools
from whet.types import Prompt

pytestmark = pytest.mark.skipif(find_spec("mcp") is None, reason="needs whet[mcp]")
SERVER = Path(__file__).with_name("mcp_server.py")
STDIO = f"mcp:{sys.executable} {SERVER}"


@pytest.fixture
def box() -> Iterator[Toolbox]:
    made = Toolbox(load_tools([STDIO], {}), ToolLimits(seconds=20))
    yield made
    made.close()


def _results(box: Toolbox, *calls: tuple[str, dict[str, Any]]) -> list[str]:
    """Play an episode with one turn for each call."""

    async def play() -> list[str]:
        env = ToolEnv(box)
        await env.reset(Prompt("rows:1", [1], "q", messages=[{"role": "user", "content": "q"}]))
        texts = []
        for number, (name, arguments) in enumerate(calls, 1):
            body = json.dumps({"name": name, "arguments": arguments})
            added, _, _, info = await env.step(Action(f"<tool_call>{body}</tool_call>", turn=number))
            texts.append(added[0]["content"])
            assert info["tool_errors"] == sum(text.startswith("Error") for text in texts)
        await env.close()
        return texts

    return asyncio.run(play())


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_server_lives_for_the_run_and_its_errors_are_observations(box: Toolbox) -> None:
    schema = box.tools["add"].schema["function"]
    assert schema["description"] == "Add two numbers."
    assert schema["parameters"]["required"] == ["a", "b"]
    added, first, failed, second, wrong = _results(
        box,
        ("add", {"a": 2, "b": 3}),
        ("process", {}),
        ("fail", {"how": "raise"}),
        ("process", {}),
        ("add", {"a": "x", "b": 1}),
    )
    assert added == "5"
    assert failed.startswith("Error: Error executing tool fail")
    assert first == second
    assert "argument a must be integer" in wrong
    box.close()
    assert eventually(lambda: not _alive(int(first)))


def test_a_server_that_dies_costs_the_call_it_had_and_is_started_again(box: Toolbox) -> None:
    first, died, second, killed, third = _results(
        box, ("process", {}), ("fail", {"how": "die"}), ("process", {}), ("fail", {"how": "kill"}), ("process", {})
    )
    for text in (died, killed):
        assert text.startswith("Error: MCP server")
        assert str(SERVER) in text
    assert len({first, second, third}) == 3


def test_a_server_that_answers_nothing_is_given_up(box: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_tools, "RESTARTS", 1)
    *_, given_up = _results(box, ("fail", {"how": "die"}), ("fail", {"how": "die"}), ("add", {"a": 1, "b": 2}))
    assert "was started again 1 times" in given_up


def test_a_server_that_hangs_as_a_whole_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_tools, "CHECK_SECONDS", 0.5)
    box = Toolbox(load_tools([STDIO], {}), ToolLimits(seconds=4))
    try:
        calls = [("process", {}), ("fail", {"how": "stop"}), *[("process", {})] * 8]
        first, stopped, *later = _results(box, *calls)
        assert "took longer than 4 s" in stopped
        assert later[-1].isdigit(), later  # on a busy machine calls overrun while it is started again
        assert later[-1] != first
        assert eventually(lambda: not _alive(int(first)))
    finally:
        box.close()


def test_lines_that_are_no_messages_cost_their_own_call_at_most(box: Toolbox) -> None:
    written, after = _results(box, ("fail", {"how": "garbage"}), ("add", {"a": 2, "b": 3}))
    assert written == "written" or written.startswith("Error: MCP server")
    assert after == "5"


def test_a_call_that_hangs_overruns_alone() -> None:
    box = Toolbox(load_tools([STDIO], {}), ToolLimits(seconds=2))
    try:
        assert "took longer than 2 s" in _results(box, ("fail", {"how": "hang"}))[0]
    finally:
        box.close()


def test_streamable_http_by_a_json_file(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, str(SERVER), str(port)], stderr=subprocess.DEVNULL)
    try:

        def listens() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        assert eventually(listens)
        file = tmp_path / "servers.json"
        file.write_text(json.dumps({"mcpServers": {"remote": {"url": f"http://127.0.0.1:{port}/mcp"}}}))
        box = Toolbox(load_tools([str(file)], {}), ToolLimits(seconds=20))
        assert _results(box, ("add", {"a": 2, "b": 3})) == ["5"]
        process.kill()
        process.wait()
        assert _results(box, ("add", {"a": 2, "b": 3}))[0].startswith("Error: MCP server remote")
        box.close()
    finally:
        process.kill()
        process.wait()


def test_verls_yaml_chooses_tools_of_a_server(tmp_path: Path) -> None:
    server = {"command": sys.executable, "args": [str(SERVER)]}
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"mine": server}}))
    entry = (
        "tools:\n  - class_name: verl.tools.mcp_search_tool.MCPSearchTool\n    config: {{type: mcp, timeout: 60}}\n"
        "    mcp: {{mcp_servers_config_path: servers.json, tool_selected_list: [{}]}}\n"
    )
    (tmp_path / "tools.yaml").write_text(entry.format("add"))
    tools = load_tools([str(tmp_path / "tools.yaml")], {})
    assert [tool.name for tool in tools] == ["add"]
    close_tools(tools)
    (tmp_path / "tools.yaml").write_text(entry.format("subtract"))
    with pytest.raises(UserError, match="no MCP server has a tool subtract"):
        load_tools([str(tmp_path / "tools.yaml")], {})


def test_servers_that_cannot_be_used(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    for text, match in (
        ("{", "cannot be read"),
        ("{}", "expected an object mcpServers"),
        ('{"mcpServers": {"x": {}}}', "MCP server x: give it either a command or a url"),
        ('{"mcpServers": {"x": {"command": "a", "arg": 1}}}', "there is no key arg"),
        ('{"mcpServers": {"x": {"command": "no-such-program-here"}}}', "MCP server x could not be started"),
        ('{"mcpServers": {"x": {"command": "python", "args": ["-c", "raise SystemExit(\'ouch\')"]}}}', "ouch"),
        ('{"mcpServers": {"x": {"url": "http://127.0.0.1:9/mcp"}}}', "MCP server x could not be started"),
    ):
        file.write_text(text.replace('"python"', json.dumps(sys.executable)))
        with pytest.raises(UserError, match=match):
            load_tools([str(file)], {})
    with pytest.raises(UserError, match="expected mcp:COMMAND"):
        load_tools(["mcp:"], {})
