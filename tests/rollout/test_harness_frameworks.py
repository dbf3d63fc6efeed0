"""Agents of other frameworks, as they are in examples/agents/harness: turns that they replay keep their ids.

They run under the interpreter that WHET_HARNESS_PYTHON names, or this one; what it has not installed is skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from chat.templates import tokenizer_of
from rollout.scripted import CALL, play

from whet.config.examples import examples_folder
from whet.envs.harness.programs import CommandProgram
from whet.envs.harness.server import SessionServer

PYTHON = os.environ.get("WHET_HARNESS_PYTHON", sys.executable)
FINAL = '<tool_call>\n{"name": "final_answer", "arguments": {"answer":  "5"}}\n</tool_call><|im_end|>'


@pytest.fixture
def server() -> Iterator[SessionServer]:
    made = SessionServer()
    yield made
    made.close()


def program(agent: str) -> CommandProgram:
    return CommandProgram(f"{PYTHON} {examples_folder() / 'agents/harness' / agent}", "key")


def needs(package: str) -> None:
    if subprocess.run([PYTHON, "-c", f"import {package}"], capture_output=True).returncode:
        pytest.skip(f"{package} is not installed")


@pytest.mark.parametrize(
    ("package", "agent"),
    [
        ("openai", "openai_agent.py"),
        ("anthropic", "anthropic_agent.py"),
        ("langchain_openai, langgraph", "langgraph_agent.py"),
        ("agents", "agents_sdk_agent.py"),
    ],
    ids=["openai", "anthropic", "LangGraph", "OpenAI Agents SDK"],
)
def test_replayed_turns_keep_their_ids(server: SessionServer, package: str, agent: str) -> None:
    needs(package)
    sample, engine, failures = play(server, program(agent), [CALL, "5<|im_end|>"])
    assert failures == []
    assert sample.turn_rewards == [0, 1.0]
    assert sample.branches == [len(sample.ids)]
    assert [segment.by_model for segment in sample.segments] == [True, False, True]
    assert engine.read[1] == sample.prompt.ids + sample.segments[0].ids + sample.segments[1].ids
    result = "\n<|im_start|>user\n<tool_response>\n5\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer_of("merged results").decode(sample.ids) == f"{CALL}{result}5<|im_end|>"


def test_an_agent_that_rewrites_its_turns_becomes_branches(server: SessionServer) -> None:
    needs("smolagents")
    sample, engine, failures = play(server, program("smolagents_agent.py"), [CALL, FINAL])
    assert failures == []
    assert sample.turn_rewards == [0, 1.0]
    assert [segment.restart for segment in sample.segments] == [False, True, False]
    assert engine.read[1] == sample.segments[1].ids
    assert [segment.by_model for segment in sample.segments] == [True, False, True]
