"""Episodes: ids are what the engine saw, limits hold, and an environment that fails costs its own sample."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
import torch
from tiny_models import Tiny

from whet.chat.encoding import TurnEncoder
from whet.chat.turns import Appended
from whet.envs.host import EnvHost
from whet.envs.session import EnvFailure, EnvSession
from whet.learn.scoring import score
from whet.rollout.conversation import Conversations
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.engine import NativeEngine
from whet.rollout.episodes import Episodes, Limits, play_all
from whet.rollout.single_turn import SingleTurn
from whet.types import Prompt, Sample

END = 1  # the token that ends a turn
LIMITS = Limits(8, 200, 6)


class Game:
    """Says "now" after each turn; ends after `turns` of them. What happens in a turn is up to subclasses."""

    opened: ClassVar[list[Game]] = []
    turns = 3

    def __init__(self) -> None:
        self.turn, self.closed = 0, 0
        Game.opened.append(self)

    def reset(self, prompt: Prompt) -> Any:
        return None

    def step(self, action: str) -> Any:
        self.turn += 1
        return "stop here and now", 0.5, self.turn == self.turns, {"turn": self.turn, "end": "played"}

    def close(self) -> None:
        self.closed += 1


@pytest.fixture(autouse=True)
def opened() -> list[Game]:
    Game.opened = []
    return Game.opened


@pytest.fixture
def host() -> Iterator[EnvHost]:
    made = EnvHost()
    yield made
    made.close()


@pytest.fixture
def engine(llama: Tiny) -> NativeEngine:
    return llama.engine(ends=(END,))


@pytest.fixture
def prompt(llama: Tiny) -> Prompt:
    messages = [{"role": "user", "content": "the answer"}]
    text = llama.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return Prompt("row 1", llama.tokenizer(text)["input_ids"], text, messages=messages)


Failures = list[EnvFailure]


def episodes(
    engine: NativeEngine,
    llama: Tiny,
    host: EnvHost,
    env: Callable[[], Any],
    limits: Limits = LIMITS,
    failures: Failures | None = None,
    seconds: float = 20.0,
) -> Episodes:
    shared = Conversations(llama.tokenizer, frozenset([END]), 64)
    heard: Failures = [] if failures is None else failures
    return Episodes(
        engine,
        SamplingParams(seed=3),
        lambda: EnvSession(env, host, seconds),
        shared,
        limits,
        lambda samples: None,
        lambda prompt, failure: heard.append(failure),
    )


def play(rollout: Episodes, prompt: Prompt, n: int = 4) -> list[Sample]:
    return play_all(rollout, [prompt], n, [10], lambda done: None)


def test_ids_are_those_the_engine_saw_and_log_probs_those_of_one_forward_pass(
    engine: NativeEngine, llama: Tiny, host: EnvHost, prompt: Prompt, full_log_probs: Callable[..., list[float]]
) -> None:
    seen: list[tuple[list[int], int]] = []
    request = engine.request

    def watched(start: Any, params: SamplingParams, sample_id: int = 0, *rest: Any) -> Any:
        made = request(start, params, sample_id, *rest)
        seen.append((list(made.prompt.ids), sample_id))
        return made

    engine.request = watched  # type: ignore[method-assign]
    samples = play(episodes(engine, llama, host, Game), prompt)
    reference = llama.reference()
    for i, sample in enumerate(samples):
        assert [segment.by_model for segment in sample.segments] == [True, False, True, False, True]
        assert sample.turns == 3
        assert sample.turn_rewards == [0.5] * 3
        assert sample.end == "played"
        assert sample.prompt is samples[0].prompt
        assert sample.index == i
        whole = sample.prompt.ids + sample.ids
        last = [ids for ids, id_ in seen if id_ == 10 + i][-1]
        assert whole[: len(last)] == last
        assert len(whole) == len(last) + len(sample.segments[-1].ids)
        exact = torch.tensor(full_log_probs(reference, sample, 1.0))
        drawn = torch.tensor(sample.mask).bool()
        torch.testing.assert_close(torch.tensor(sample.log_probs)[drawn], exact[drawn], atol=1e-4, rtol=1e-4)
        # What the environment said is as the template writes it, whichever way the turn ended.
        text = llama.tokenizer.decode(sample.segments[1].ids)
        ended = sample.segments[0].ids[-1] == END
        assert text == f"{'' if ended else '<|end|>'}<|user|>stop here and now<|end|><|assistant|>"
    assert len({tuple(sample.ids) for sample in samples}) > 1


def test_earlier_turns_are_not_read_again(engine: NativeEngine, llama: Tiny, host: EnvHost, prompt: Prompt) -> None:
    read = 0
    prefill = engine._runner.prefill

    def counted(chunks: list[Any]) -> None:
        nonlocal read
        read += sum(stop - reading.at for reading, stop in chunks)
        prefill(chunks)

    engine._runner.prefill = counted  # type: ignore[method-assign]
    (sample,) = play(episodes(engine, llama, host, Game), prompt, n=1)
    observed = [len(segment.ids) for segment in sample.segments if not segment.by_model]
    # The last token of a turn was drawn and not read, so it is read with the observation.
    assert read == len(prompt.ids) + sum(observed) + len(observed)


def test_the_environment_that_ends_with_the_first_turn_samples_as_without_one(
    engine: NativeEngine, llama: Tiny, host: EnvHost, prompt: Prompt
) -> None:
    from whet.envs.adapters.single_turn import SingleTurnEnv

    alone = SingleTurn(engine, SamplingParams(n=4, seed=3, max_tokens=12), lambda samples: None)
    expected = asyncio.run(alone(prompt, range(10, 14)))
    played = play(episodes(engine, llama, host, SingleTurnEnv, Limits(5, 12)), prompt)
    assert [sample.ids for sample in played] == [sample.ids for sample in expected]
    assert [sample.finish for sample in played] == [sample.finish for sample in expected]


@pytest.mark.parametrize(
    ("limits", "turns", "end"),
    [
        (Limits(2, 200, 4), 2, "max_turns"),
        (Limits(99, 60, 4), None, "length"),
        (Limits(99, 3), 1, "length"),
    ],
    ids=["turns", "tokens", "no room for an observation"],
)
def test_an_environment_that_never_ends_is_ended(
    engine: NativeEngine, llama: Tiny, host: EnvHost, prompt: Prompt, limits: Limits, turns: int | None, end: str
) -> None:
    class Endless(Game):
        turns = -1

        def step(self, action: str) -> Any:
            return "stop here and now", 0.0, False, {}

    for sample in play(episodes(engine, llama, host, Endless, limits), prompt):
        assert sample.end == end
        assert len(sample.ids) <= limits.tokens
        assert sample.segments[-1].by_model
        assert turns is None or sample.turns == turns


class Huge(Game):
    def step(self, action: str) -> Any:
        answer = super().step(action)
        return ("stop " * (2 << 20), *answer[1:]) if Game.opened[0] is self else answer


class HugeReset(Game):
    def reset(self, prompt: Prompt) -> Any:
        return "stop " * (2 << 20) if Game.opened[0] is self else None


@pytest.mark.parametrize(("env", "end", "failed"), [(Huge, "length", 0), (HugeReset, "reset bad result", 1)])
def test_an_observation_of_10_mb_is_not_encoded(
    engine: NativeEngine,
    llama: Tiny,
    host: EnvHost,
    prompt: Prompt,
    monkeypatch: pytest.MonkeyPatch,
    env: type[Game],
    end: str,
    failed: int,
) -> None:
    longest: list[int] = []
    encode = TurnEncoder.encode

    def watched(self: TurnEncoder, text: str, *rest: Any, **named: Any) -> list[int]:
        longest.append(len(text))
        return encode(self, text, *rest, **named)

    monkeypatch.setattr(TurnEncoder, "encode", watched)
    failures: Failures = []
    ends = [sample.end for sample in play(episodes(engine, llama, host, env, failures=failures), prompt)]
    assert sorted(ends) == sorted([end, *["played"] * 3])
    assert len(failures) == failed
    assert longest
    assert max(longest) < 1000


class Raises(Game):
    def step(self, action: str) -> Any:
        if self.turn == 1 and len(Game.opened) and Game.opened[0] is self:
            raise KeyError("no such door")
        return super().step(action)


class Hangs(Game):
    def step(self, action: str) -> Any:
        if self.turn == 1 and Game.opened[0] is self:
            time.sleep(60)
        return super().step(action)


class HangsAsync(Game):
    async def step(self, action: str) -> Any:  # type: ignore[override]
        if self.turn == 1 and Game.opened[0] is self:
            await asyncio.sleep(60)
        return super().step(action)


class WrongType(Game):
    def step(self, action: str) -> Any:
        answer = super().step(action)
        return "just text" if self.turn == 2 and Game.opened[0] is self else answer


class Unreadable(Game):
    class Text(str):
        def __str__(self) -> str:
            raise KeyError("lazy")

    def step(self, action: str) -> Any:
        answer = super().step(action)
        return (self.Text("x"), *answer[1:]) if self.turn == 2 and Game.opened[0] is self else answer


@pytest.mark.parametrize(
    ("env", "kind", "said"),
    [
        (Raises, "raised", "step of turn 2 raised KeyError: 'no such door' ("),
        (Hangs, "timeout", "step of turn 2 did not finish within 1 s (it stood at "),
        (HangsAsync, "timeout", "step of turn 2 did not finish within 1 s"),
        (WrongType, "bad result", "step of turn 2 returned a wrong value: step must return the four values"),
        (Unreadable, "bad result", "step of turn 2 returned what cannot be read: KeyError: 'lazy' ("),
    ],
)
def test_an_environment_that_fails_costs_its_own_sample(
    engine: NativeEngine, llama: Tiny, host: EnvHost, prompt: Prompt, env: Any, kind: str, said: str
) -> None:
    failures: Failures = []
    samples = play(episodes(engine, llama, host, env, failures=failures, seconds=1.0), prompt)
    failed = [sample for sample in samples if sample.failure]
    assert [sample.failure for sample in failed] == [f"env {kind}"]
    assert failed[0].turns == 2
    assert failed[0].turn_rewards == [0.0, 0.0]
    assert failed[0].end == f"step {kind}"
    assert str(failures[0]).startswith(said)
    assert len(failures) == 1
    assert all(sample.end == "played" for sample in samples if not sample.failure)
    assert [game.closed for game in Game.opened] == [1] * 4


def test_an_environment_that_fails_before_the_first_turn_leaves_a_sample_that_nobody_trains_on(
    engine: NativeEngine, llama: Tiny, host: EnvHost, prompt: Prompt
) -> None:
    class NoReset(Game):
        def reset(self, prompt: Prompt) -> Any:
            return 7

    failures: Failures = []
    (sample,) = play(episodes(engine, llama, host, NoReset, failures=failures), prompt, n=1)
    assert sample.mask == [0]
    assert sample.turns == 0
    assert sample.failure == "env bad result"
    assert "reset returned a wrong value: the observation must be text" in str(failures[0])


def test_a_close_that_raises_is_reported_and_costs_nothing(
    engine: NativeEngine, llama: Tiny, host: EnvHost, prompt: Prompt
) -> None:
    class BadClose(Game):
        def close(self) -> None:
            raise OSError("gone")

    failures: Failures = []
    (sample,) = play(episodes(engine, llama, host, BadClose, failures=failures), prompt, n=1)
    assert sample.failure is None
    assert sample.end == "played"
    assert "close raised OSError: gone" in str(failures[0])


def test_environments_are_closed_when_the_rollout_is_cancelled(
    engine: NativeEngine, llama: Tiny, prompt: Prompt
) -> None:
    waiting, host = threading.Event(), EnvHost()

    class Waits(Game):
        async def step(self, action: str) -> Any:  # type: ignore[override]
            waiting.set()
            await asyncio.sleep(60)

    async def cancelled() -> None:
        task = asyncio.create_task(episodes(engine, llama, host, Waits)(prompt, range(10, 13)))
        await asyncio.to_thread(waiting.wait, 30)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(cancelled())
    host.close()
    assert [game.closed for game in Game.opened] == [1] * 3


def test_reset_may_add_to_the_prompt_or_replace_it_and_takes_a_seed_that_a_group_shares(
    engine: NativeEngine, llama: Tiny, host: EnvHost, prompt: Prompt
) -> None:
    seeds = []

    class Adds(Game):
        turns = 1

        def reset(self, prompt: Prompt, seed: int) -> Any:  # type: ignore[override]
            seeds.append(seed)
            return "is seven"

    class Replaces(Game):
        turns = 1

        def reset(self, prompt: Prompt) -> Any:
            return [{"role": "system", "content": "stop"}, {"role": "user", "content": "here"}]

    for env, text in (
        (Adds, "<|user|>the answer\nis seven<|end|><|assistant|>"),
        (Replaces, "<|system|>stop<|end|><|user|>here<|end|><|assistant|>"),
    ):
        samples = play(episodes(engine, llama, host, env), prompt)
        assert all(sample.prompt is samples[0].prompt for sample in samples)
        assert samples[0].prompt.text == llama.tokenizer.decode(samples[0].prompt.ids) == text
    assert len(set(seeds)) == 1
    assert len(seeds) == 4


def test_a_template_that_rewrites_earlier_turns_starts_a_branch(
    engine: NativeEngine, llama: Tiny, host: EnvHost, prompt: Prompt, full_log_probs: Callable[..., list[float]]
) -> None:
    rollout = episodes(engine, llama, host, Game)
    template = rollout._conversations.template(None)
    anew = [4, 200, 201, 3]
    template.append = lambda messages, written, added: Appended(anew, True)  # type: ignore[method-assign]
    (sample,) = play(rollout, prompt, n=1)
    assert len(sample.branches) == 3
    assert sum(sample.branches) == len(sample.ids)
    last = sample.segments[-1]
    # The third turn was drawn behind the conversation as it was written anew, and nothing else.
    alone = Sample.written(Prompt("x", anew, ""), last.ids, last.log_probs, "stop")
    exact = full_log_probs(llama.reference(), alone, 1.0)
    torch.testing.assert_close(torch.tensor(last.log_probs), torch.tensor(exact), atol=1e-4, rtol=1e-4)
    # The learner sees each turn in the branch in which it was drawn.
    drawn = torch.tensor(sample.mask).bool()
    for share in (True, False):
        with torch.no_grad():
            learned = score(llama.model(), [sample], 1.0, share_prefix=share).log_probs_BT[0]
        torch.testing.assert_close(learned[drawn], torch.tensor(sample.log_probs)[drawn], atol=1e-4, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("blocking", [False, True])
def test_slow_environments_do_not_wait_for_each_other(
    engine: NativeEngine, llama: Tiny, host: EnvHost, prompt: Prompt, blocking: bool
) -> None:
    class Slow(Game):
        turns = 4

        async def step(self, action: str) -> Any:  # type: ignore[override]
            await asyncio.sleep(1.0)
            return super().step(action)

    class SlowBlocking(Game):
        turns = 4

        def step(self, action: str) -> Any:
            time.sleep(1.0)
            return super().step(action)

    rollout = episodes(engine, llama, host, SlowBlocking if blocking else Slow)
    seconds = []
    for n in (1, 64):
        began = time.perf_counter()
        play(rollout, prompt, n)
        seconds.append(time.perf_counter() - began)
    assert seconds[1] < 2 * seconds[0]
