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
from transformers import PreTrainedTokenizerBase

from whet.assets.examples import examples_folder
from whet.chat.calls.registry import parser
from whet.envs.harness.programs import CommandProgram
from whet.envs.harness.server import SessionServer
from whet.envs.host import EnvHost
from whet.envs.session import EnvFailure
from whet.rollout.conversation import Conversations
from whet.rollout.engine import SamplingParams, Start, begin
from whet.rollout.episodes import Limits, play_all
from whet.rollout.harness import Harness, HarnessEpisodes
from whet.types import Prompt, Sample

PYTHON = os.environ.get("WHET_HARNESS_PYTHON", sys.executable)
PROMPT = Prompt("row 1", [1], "", answer="5", extra={"problem": "Add 2 and 3.", "answer": "5"})
# Spacing of a policy's own, which no framework sends back as it was.
CALL = '<tool_call>\n{"name":  "add", "arguments": {"b":3,  "a": 2}}\n</tool_call><|im_end|>'
FINAL = '<tool_call>\n{"name": "final_answer", "arguments": {"answer":  "5"}}\n</tool_call><|im_end|>'


class Scripted:
    """Writes given turns, one after the other; remembers what it read."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, turns: list[str]) -> None:
        self._turns = [tokenizer(turn, add_special_tokens=False)["input_ids"] for turn in turns]
        self.read: list[list[int]] = []

    async def sample(self, start: Start, params: SamplingParams, sample_id: int = 0) -> list[Sample]:
        begun = begin(start)
        self.read.append(list(begun.prefix.ids))
        turn = list(self._turns[len(self.read) - 1])
        return [begun.sample(turn, [-0.5] * len(turn), "stop", 0, [(0, 0)])]


@pytest.fixture
def server() -> Iterator[SessionServer]:
    made = SessionServer()
    yield made
    made.close()


def play(server: SessionServer, agent: str, turns: list[str]) -> tuple[Sample, Scripted, list[EnvFailure]]:
    tokenizer = tokenizer_of("merged results")
    engine, failures, host = Scripted(tokenizer, turns), [], EnvHost()
    program = CommandProgram(f"{PYTHON} {examples_folder() / 'agents/harness' / agent}", "key")
    shared = Conversations(tokenizer, frozenset([tokenizer.eos_token_id]), 100_000)
    harness = Harness(program, server, host, shared, parser("hermes"), 90.0, True)
    rollout = HarnessEpisodes(
        engine,  # type: ignore[arg-type]
        SamplingParams(),
        harness,
        Limits(8, 200_000),
        lambda samples: None,
        lambda prompt, failure: failures.append(failure),
    )
    try:
        (sample,) = play_all(rollout, [PROMPT], 1, [0], lambda done: None)
    finally:
        host.close()
    return sample, engine, failures


def needs(package: str) -> None:
    if subprocess.run([PYTHON, "-c", f"import {package}"], capture_output=True).returncode:
        pytest.skip(f"{package} is not installed")


@pytest.mark.parametrize(
    ("package", "agent"),
    [("langchain_openai, langgraph", "langgraph_agent.py"), ("agents", "agents_sdk_agent.py")],
    ids=["LangGraph", "OpenAI Agents SDK"],
)
def test_replayed_turns_keep_their_ids(server: SessionServer, package: str, agent: str) -> None:
    needs(package)
    sample, engine, failures = play(server, agent, [CALL, "5<|im_end|>"])
    assert failures == []
    assert sample.turn_rewards == [0, 1.0]
    assert sample.branches == [len(sample.ids)]
    assert [segment.by_model for segment in sample.segments] == [True, False, True]
    assert engine.read[1] == sample.prompt.ids + sample.segments[0].ids + sample.segments[1].ids
    result = "\n<|im_start|>user\n<tool_response>\n5\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer_of("merged results").decode(sample.ids) == f"{CALL}{result}5<|im_end|>"


def test_an_agent_that_rewrites_its_turns_becomes_branches(server: SessionServer) -> None:
    needs("smolagents")
    sample, engine, failures = play(server, "smolagents_agent.py", [CALL, FINAL])
    assert failures == []
    assert sample.turn_rewards == [0, 1.0]
    assert [segment.restart for segment in sample.segments] == [False, True, False]
    assert engine.read[1] == sample.segments[1].ids
    assert [segment.by_model for segment in sample.segments] == [True, False, True]
