"""Harnesses: ids are what the engine saw, replayed turns are never encoded again, and failures cost one sample."""

from __future__ import annotations

import asyncio
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import Tiny

from whet.chat.messages import Parsed
from whet.envs.harness.programs import CommandProgram, FunctionProgram, Program
from whet.envs.harness.server import SessionServer
from whet.envs.host import EnvHost
from whet.envs.session import EnvFailure
from whet.rollout.conversation import Conversations
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.engine import NativeEngine
from whet.rollout.episodes import Limits, play_all
from whet.rollout.harness import Harness, HarnessEpisodes
from whet.types import Prompt, Sample

END = 1  # the token that ends a turn
LIMITS = Limits(8, 200, 6)
Ask = Callable[..., dict[str, Any]]


def post(base_url: str, api_key: str, path: str, body: Any) -> Any:
    headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{base_url}{path}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def chat(base_url: str, api_key: str, messages: list[Any], **more: Any) -> dict[str, Any]:
    answer = post(base_url, api_key, "/chat/completions", {"model": "m", "messages": messages, **more})
    return answer["choices"][0]["message"]  # type: ignore[no-any-return]


@pytest.fixture
def engine(llama: Tiny) -> NativeEngine:
    return llama.engine(ends=(END,))


@pytest.fixture
def seen(engine: NativeEngine) -> dict[int, list[list[int]]]:
    """Ids that the engine read, for each sample id in the order of its calls."""
    found: dict[int, list[list[int]]] = {}
    request = engine.request

    def watched(start: Any, params: SamplingParams, sample_id: int = 0, *rest: Any) -> Any:
        made = request(start, params, sample_id, *rest)
        found.setdefault(sample_id, []).append(list(made.prompt.ids))
        return made

    engine.request = watched  # type: ignore[method-assign]
    return found


@pytest.fixture
def prompt(llama: Tiny) -> Prompt:
    messages = [{"role": "user", "content": "the answer"}]
    text = llama.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return Prompt("row 1", llama.tokenizer(text)["input_ids"], text, extra={"word": "stop"}, messages=messages)


class Stage:
    """An endpoint, and the failures that were reported."""

    def __init__(self, engine: NativeEngine, llama: Tiny) -> None:
        self.engine, self.server, self.host = engine, SessionServer(), EnvHost()
        self.shared = Conversations(llama.tokenizer, frozenset([END]), 64)
        self.failures: list[EnvFailure] = []

    def play(
        self,
        program: Program | Callable[..., Any],
        prompt: Prompt,
        n: int = 1,
        limits: Limits = LIMITS,
        seconds: float = 60.0,
        needs_reward: bool = True,
    ) -> list[Sample]:
        made = FunctionProgram(program) if callable(program) else program
        harness = Harness(made, self.server, self.host, self.shared, Parsed, seconds, needs_reward)
        heard: Callable[..., None] = lambda row, failure: self.failures.append(failure)  # noqa: E731
        rollout = HarnessEpisodes(self.engine, SamplingParams(seed=3), harness, limits, lambda samples: None, heard)
        return play_all(rollout, [prompt], n, [10], lambda done: None)


@pytest.fixture
def stage(engine: NativeEngine, llama: Tiny) -> Iterator[Stage]:
    made = Stage(engine, llama)
    yield made
    made.host.close()
    made.server.close()


def three_turns(base_url: str, api_key: str, row: dict[str, Any]) -> float:
    messages = [dict(message) for message in row["messages"]]
    for _ in range(3):
        messages += [chat(base_url, api_key, messages), {"role": "user", "content": f"{row['word']} here and now"}]
    return 0.5


async def three_turns_async(base_url: str, api_key: str, row: dict[str, Any]) -> float:
    return await asyncio.to_thread(three_turns, base_url, api_key, row)


@pytest.mark.parametrize("program", [three_turns, three_turns_async])
def test_ids_are_those_the_engine_saw_and_log_probs_those_of_one_forward_pass(
    stage: Stage,
    llama: Tiny,
    prompt: Prompt,
    seen: dict[int, list[list[int]]],
    full_log_probs: Callable[..., list[float]],
    program: Callable[..., Any],
) -> None:
    samples = stage.play(program, prompt, n=4)
    reference = llama.reference()
    for i, sample in enumerate(samples):
        assert sample.failure is None
        assert [segment.by_model for segment in sample.segments] == [True, False, True, False, True]
        assert sample.turn_rewards == [0, 0, 0.5]
        assert (sample.index, sample.end) == (i, "done")
        assert sample.prompt is samples[0].prompt
        assert sample.prompt.ids == prompt.ids
        whole = sample.prompt.ids + sample.ids
        starts = [0, *(sum(len(each.ids) for each in sample.segments[:at]) for at in (2, 4))]
        assert seen[10 + i] == [whole[: len(prompt.ids) + start] for start in starts]
        exact = torch.tensor(full_log_probs(reference, sample, 1.0))
        drawn = torch.tensor(sample.mask).bool()
        torch.testing.assert_close(torch.tensor(sample.log_probs)[drawn], exact[drawn], atol=1e-4, rtol=1e-4)
        ended = sample.segments[0].ids[-1] == END
        text = llama.tokenizer.decode(sample.segments[1].ids)
        assert text == f"{'' if ended else '<|end|>'}<|user|>stop here and now<|end|><|assistant|>"
    assert len({tuple(sample.ids) for sample in samples}) > 1


def test_a_changed_history_is_a_branch_and_a_return_to_an_earlier_turn_takes_its_ids(
    stage: Stage, prompt: Prompt, seen: dict[int, list[list[int]]]
) -> None:
    def run(base_url: str, api_key: str, row: dict[str, Any]) -> float:
        first = [{"role": "user", "content": "the answer"}]
        said = chat(base_url, api_key, first)
        chat(base_url, api_key, [{"role": "user", "content": "stop here"}])  # another conversation
        chat(base_url, api_key, [*first, said, {"role": "user", "content": "now"}])  # back to the first
        return 1.0

    (sample,) = stage.play(run, prompt)
    assert [segment.by_model for segment in sample.segments] == [True, False, True, False, True]
    assert [segment.restart for segment in sample.segments] == [False, True, False, True, False]
    calls = seen[10]
    assert calls[1] == sample.segments[1].ids
    assert calls[2] == sample.segments[3].ids
    turn = sample.segments[0].ids
    assert calls[2][: len(calls[0]) + len(turn)] == calls[0] + turn
    assert sample.branches == [len(turn), *(len(calls[i]) + len(sample.segments[2 * i].ids) for i in (1, 2))]


def test_a_stream_holds_the_turn_that_is_recorded(stage: Stage, prompt: Prompt, llama: Tiny) -> None:
    streamed: list[str] = []

    def run(base_url: str, api_key: str, row: dict[str, Any]) -> float:
        from openai import OpenAI

        with OpenAI(base_url=base_url, api_key=api_key) as client:
            events = client.chat.completions.create(
                model="policy", messages=row["messages"], stream=True, stream_options={"include_usage": True}
            )
            chunks = list(events)
        streamed.extend(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert chunks[-1].usage.completion_tokens > 0
        return 1.0

    (sample,) = stage.play(run, prompt)
    assert stage.failures == []
    ids = sample.ids[:-1] if sample.ids[-1] == END else sample.ids
    assert "".join(streamed) == llama.tokenizer.decode(ids)


def test_the_openai_client_trains_unchanged_and_may_post_its_reward(stage: Stage, prompt: Prompt) -> None:
    def run(base_url: str, api_key: str, row: dict[str, Any]) -> None:
        from openai import OpenAI

        with OpenAI(base_url=base_url, api_key=api_key) as client:
            messages: list[Any] = list(row["messages"])
            for temperature in (0.0, 2.0):  # the run's are used
                answer = client.chat.completions.create(
                    model=client.models.list().data[0].id, messages=messages, temperature=temperature
                )
                messages += [answer.choices[0].message, {"role": "user", "content": "now"}]
            post(base_url, api_key, "/reward", {"reward": 0.25, "tries": 2, "end": "tired"})

    (sample,) = stage.play(run, prompt)
    assert stage.failures == []
    assert len(sample.branches) == 1
    assert sample.turn_rewards == [0, 0.25]
    assert (sample.info, sample.end) == ({"tries": 2.0}, "tired")


@pytest.mark.parametrize(
    ("limits", "turns", "end"), [(Limits(2, 200, 4), 2, "max_turns"), (Limits(99, 30, 4), None, "length")]
)
def test_a_harness_that_never_ends_is_told_of_its_limits_and_has_not_failed(
    stage: Stage, prompt: Prompt, limits: Limits, turns: int | None, end: str
) -> None:
    def run(base_url: str, api_key: str, row: dict[str, Any]) -> float:
        messages = list(row["messages"])
        while True:
            messages += [chat(base_url, api_key, messages), {"role": "user", "content": "now"}]

    (sample,) = stage.play(run, prompt, limits=limits)
    assert (sample.failure, sample.end) == (None, end)
    assert len(sample.ids) <= limits.tokens
    assert turns is None or sample.turns == turns


def raises(base_url: str, api_key: str, row: dict[str, Any]) -> float:
    chat(base_url, api_key, row["messages"])
    raise KeyError("no such door")


def hangs(base_url: str, api_key: str, row: dict[str, Any]) -> float:
    chat(base_url, api_key, row["messages"])
    time.sleep(30)
    return 1.0


def exits(base_url: str, api_key: str, row: dict[str, Any]) -> float:
    chat(base_url, api_key, row["messages"])
    sys.exit(3)


def wrong(base_url: str, api_key: str, row: dict[str, Any]) -> Any:
    chat(base_url, api_key, row["messages"])
    return "well done"


def none(base_url: str, api_key: str, row: dict[str, Any]) -> None:
    chat(base_url, api_key, row["messages"])


def infinite(base_url: str, api_key: str, row: dict[str, Any]) -> Any:
    chat(base_url, api_key, row["messages"])
    return {"reward": float("nan")}


@pytest.mark.parametrize(
    ("program", "kind", "said"),
    [
        (raises, "raised", "agent raised KeyError: 'no such door' ("),
        (hangs, "timeout", "agent did not finish within 2 s (it stood at "),
        (exits, "raised", "agent raised SystemExit: 3"),
        (wrong, "bad result", "agent returned a wrong value: expected a number"),
        (none, "bad result", "agent gave no reward"),
        (infinite, "bad result", "agent returned a wrong value: reward must be a number within ±1e+06, not nan"),
    ],
)
def test_a_harness_that_fails_keeps_what_was_written_and_scores_nothing(
    stage: Stage, prompt: Prompt, program: Callable[..., Any], kind: str, said: str
) -> None:
    (sample,) = stage.play(program, prompt, seconds=2.0)
    assert (sample.failure, sample.end) == (f"env {kind}", f"agent {kind}")
    assert sample.turns == 1
    assert sample.turn_rewards == [0]
    assert [str(failure)[: len(said)] for failure in stage.failures] == [said]


def test_without_a_call_there_is_a_sample_that_nobody_trains_on(stage: Stage, prompt: Prompt) -> None:
    (sample,) = stage.play(lambda base_url, api_key, row: 1.0, prompt)
    assert (sample.mask, sample.failure) == ([0], "env bad result")


def test_none_leaves_the_score_to_the_reward_function(stage: Stage, prompt: Prompt) -> None:
    (sample,) = stage.play(none, prompt, needs_reward=False)
    assert (sample.failure, sample.segments[-1].reward) == (None, None)


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"messages": []}, 400, "messages must be a list that is not empty"),
        ({"messages": [{"role": "owl", "content": "a"}]}, 400, "messages[0].role must be one of"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, 400, "the last message must not be the assistant's"),
        ({"messages": [{"role": "user", "content": "a"}], "n": 2}, 400, "n is not supported here"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            400,
            "messages[0].content[0]: an image must be sent as a data: URL",
        ),
        ({"messages": [{"role": "user", "content": "stop " * 99}]}, 400, "more than data.max_prompt_length=64"),
        (
            {"messages": [{"role": "user", "content": "stop " * (2 << 20)}]},
            400,
            "longer than data.max_prompt_length=64 and",
        ),
        ({"messages": [{"role": "user", "content": "a"}], "max_tokens": 0}, 400, "max_tokens must be a whole number"),
        ({"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "web"}]}, 400, "tools[0] must be of type"),
        (7, 400, "the body must be a JSON object"),
    ],
)
def test_bad_calls_are_refused_by_name_and_cost_nothing(
    stage: Stage, prompt: Prompt, body: Any, status: int, said: str
) -> None:
    told: list[tuple[int, str]] = []

    def run(base_url: str, api_key: str, row: dict[str, Any]) -> float:
        for key in (api_key, "whet-guessed"):
            with pytest.raises(urllib.error.HTTPError) as raised:
                post(base_url, key, "/chat/completions", body if key == api_key else {})
            told.append((raised.value.code, json.load(raised.value)["error"]["message"]))
        chat(base_url, api_key, row["messages"])
        return 1.0

    (sample,) = stage.play(run, prompt)
    assert stage.failures == []
    assert told[0][0] == status
    assert said in told[0][1]
    assert told[1][0] == 401
    assert sample.turns == 1


def test_a_straggler_is_refused_and_not_recorded(stage: Stage, prompt: Prompt) -> None:
    keys: list[tuple[str, str]] = []

    def run(base_url: str, api_key: str, row: dict[str, Any]) -> float:
        keys.append((base_url, api_key))
        chat(base_url, api_key, row["messages"])
        return 1.0

    (sample,) = stage.play(run, prompt)
    with pytest.raises(urllib.error.HTTPError) as raised:
        chat(*keys[0], prompt.messages)
    assert raised.value.code == 410
    assert sample.turns == 1


COMMAND = """
import json, os, subprocess, sys, time, urllib.request
def ask():
    body = json.dumps({"model": "m", "messages": json.loads(os.environ["WHET_ROW"])["messages"]}).encode()
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    json.load(urllib.request.urlopen(request))
ask()
mode = sys.argv[1]
if mode in ("hang", "leave"):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    open(sys.argv[2], "w").write(f"{os.getpid()} {child.pid}")
if mode == "hang":
    time.sleep(60)
if mode == "fail":
    print("this went wrong", file=sys.stderr)
    sys.exit(4)
if mode == "flood":
    sys.stdout.write("x" * 3_000_000 + "\\n")
print({"wrong": '{"right": 1}'}.get(mode, '{"reward": 0.5, "right": 1}'))
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("mode", "failure", "said"),
    [
        ("well", None, ""),
        ("flood", None, ""),
        ("leave", None, ""),
        ("hang", "env timeout", "agent did not finish within 5 s"),
        ("fail", "env raised", "agent ended with exit code 4: this went wrong"),
        ("wrong", "env bad result", "agent printed a wrong last line: scores need a reward"),
    ],
)
def test_a_command_is_scored_by_its_last_line_and_ended_with_all_that_it_started(
    stage: Stage, prompt: Prompt, tmp_path: Path, mode: str, failure: str | None, said: str
) -> None:
    (tmp_path / "agent.py").write_text(COMMAND)
    command = f"{sys.executable} {tmp_path / 'agent.py'} {mode} {tmp_path / 'pids'}"
    (sample,) = stage.play(CommandProgram(command, "key"), prompt, seconds=5.0)
    assert sample.failure == failure, stage.failures
    assert sample.turns == 1
    assert said in "".join(map(str, stage.failures))
    if failure is None:
        assert (sample.turn_rewards, sample.info) == ([0.5], {"right": 1.0})
    if (tmp_path / "pids").exists():
        deadline = time.monotonic() + 10
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        while any(map(alive, pids)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(map(alive, pids))
