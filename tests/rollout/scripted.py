"""A policy that writes given turns, and the rollout of one sample with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chat.templates import tokenizer_of
from transformers import PreTrainedTokenizerBase

from whet.chat.calls.registry import parser
from whet.envs.harness.programs import FunctionProgram, Program
from whet.envs.harness.server import SessionServer
from whet.envs.host import EnvHost
from whet.envs.session import EnvFailure
from whet.rollout.conversation import Conversations
from whet.rollout.engine import SamplingParams, Start, begin
from whet.rollout.episodes import Limits, play_all
from whet.rollout.harness import Harness, HarnessEpisodes
from whet.types import Prompt, Sample

PROMPT = Prompt("row 1", [1], "", answer="5", extra={"problem": "Add 2 and 3.", "answer": "5"})
# Spacing of a policy's own, which no framework sends back as it was.
CALL = '<tool_call>\n{"name":  "add", "arguments": {"b":3,  "a": 2}}\n</tool_call><|im_end|>'


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


def play(
    server: SessionServer, program: Program | Callable[..., Any], turns: list[str], template: str = "merged results"
) -> tuple[Sample, Scripted, list[EnvFailure]]:
    """Run a harness once; return its sample, the policy, and failures."""
    tokenizer = tokenizer_of(template)
    engine, failures, host = Scripted(tokenizer, turns), [], EnvHost()
    made = FunctionProgram(program) if callable(program) else program
    shared = Conversations(tokenizer, frozenset([tokenizer.eos_token_id]), 100_000)
    harness = Harness(made, server, host, shared, parser("hermes"), 90.0, True)
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
