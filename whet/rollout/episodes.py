"""Sample groups of episodes with an environment: the rollout that a collector runs in place of `SingleTurn`.

A turn is: the engine continues the sample, the environment answers, and the tokens of the answer are put behind those
that the policy drew. Nothing is encoded twice: ids that the engine saw are the ids that the learner trains on. Episodes
do not wait for each other; whichever has its answer joins what the engine decodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from whet.envs.observations import Answer
from whet.envs.protocol import Action
from whet.envs.session import EnvFailure, EnvSession
from whet.rollout.blocking import run_blocking
from whet.rollout.collector import Rollout
from whet.rollout.conversation import Conversation, Conversations, cannot_fit
from whet.rollout.engine import Engine, KeepsSamples, SamplingParams
from whet.rollout.single_turn import sample_whole
from whet.types import Prompt, Sample, Segment

_T = TypeVar("_T")
Finish = Callable[[list[Sample]], None]  # adds what is known of finished samples, such as their text
Report = Callable[[Prompt, EnvFailure], None]  # hears of each environment that failed


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of an episode."""

    turns: int  # of the policy
    tokens: int  # of the response, observations included
    turn_tokens: int | None = None  # of one turn of the policy


class Episodes:
    """Plays one episode for each sample of a prompt."""

    def __init__(
        self,
        engine: Engine,
        params: SamplingParams,
        open_env: Callable[[], EnvSession],
        conversations: Conversations,
        limits: Limits,
        finish: Finish,
        report: Report,
    ) -> None:
        """`params.max_tokens` is not used: `limits` say how long turns and responses may be."""
        self._engine, self._params = engine, replace(params, n=1)
        self._open_env, self._conversations, self._limits = open_env, conversations, limits
        self._finish, self._report = finish, report

    async def __call__(self, prompt: Prompt, ids: range) -> list[Sample]:
        """Return the samples of these ids; the failure of an environment costs its own sample only."""
        samples = await gathered([self._episode(prompt, ids, index) for index in range(len(ids))])
        share_prompts(samples)
        self._finish(samples)
        return samples

    async def _episode(self, prompt: Prompt, ids: range, index: int) -> Sample:
        env, played = self._open_env(), _Played(prompt, index)
        try:
            try:
                await self._play(env, played, ids)
            except EnvFailure as failure:
                played.fail(failure)
                self._report(prompt, failure)
            try:
                await env.close()
            except EnvFailure as failure:  # of a played episode nothing is lost by it
                self._report(prompt, failure)
        finally:
            env.abandon()  # cancelled: closes what is still open, without waiting
            give_back(self._engine, self._params, ids.start + index)
        return played.sample(self._conversations.filler)

    async def _play(self, env: EnvSession, played: _Played, ids: range) -> None:
        limits, sample_id = self._limits, ids.start + played.index
        opened = await env.open(played.prompt, ids.start + self._params.seed * 1_000_003)
        conversation = self._conversations.begin(played.prompt, opened)
        played.prompt = conversation.prompt
        while True:
            # 1. The policy's turn.
            last = played.turns + 1 == limits.turns
            room = limits.tokens - len(played)
            params = replace(self._params, max_tokens=min(room, limits.turn_tokens or room), keep=not last)
            sample = await sample_whole(self._engine, played.start, params, sample_id)
            turn = played.take(sample)
            # 2. The environment's answer, and the reward of the turn.
            answer = await env.step(Action(conversation.text(turn), turn, sample.finish, played.turns))
            played.reward(answer)
            if answer.done or last or len(played) >= limits.tokens:
                played.end = answer.end or ("done" if answer.done else "max_turns" if last else "length")
                return
            # 3. Its tokens behind those of the turn.
            if not self._append(conversation, played, turn, answer):
                played.end = played.finish = "length"
                return

    def _append(self, conversation: Conversation, played: _Played, turn: list[int], answer: Answer) -> bool:
        """Add an observation; False, and nothing is added, where the policy could not write another token behind it."""
        assert answer.observed is not None, "checked when the answer was read"
        room = self._limits.tokens - len(played)
        if cannot_fit(answer.observed.messages, room):
            return False
        segment = conversation.append(turn, answer)
        if len(segment.ids) >= room:
            return False
        played.segments.append(segment)
        return True


class _Played:
    """An episode so far."""

    def __init__(self, prompt: Prompt, index: int) -> None:
        self.prompt: Prompt = prompt  # as `reset` left it
        self.index = index
        self.segments: list[Segment] = []
        self.routing: Any = None  # experts of the tokens so far, where they are recorded
        self.finish: str = "stop"
        self.end: str | None = None
        self.info: dict[str, float] = {}
        self.failure: str | None = None
        self.turns = 0

    def __len__(self) -> int:
        return sum(len(segment.ids) for segment in self.segments)

    @property
    def start(self) -> Prompt | Sample:
        """What the engine continues."""
        return Sample(self.prompt, list(self.segments), "stop", routing=self.routing) if self.segments else self.prompt

    def take(self, sample: Sample) -> list[int]:
        """Take the segments of a continued sample; return the tokens that are new."""
        before = len(self)
        self.segments, self.finish, self.routing = list(sample.segments), sample.finish, sample.routing
        self.turns += 1
        return sample.ids[before:]

    def reward(self, answer: Answer) -> None:
        """Note the reward of the latest turn, on its last segment."""
        self.segments[-1] = replace(self.segments[-1], reward=answer.reward)
        self.info |= answer.info

    def fail(self, failure: EnvFailure) -> None:
        """Note that the environment failed: what the turns earned before no longer counts."""
        self.failure, self.end = (
            f"env {failure.kind}",
            failure.place.removeprefix("the ").split()[0] + " " + failure.kind,
        )
        self.segments = [replace(segment, reward=None) for segment in self.segments]

    def sample(self, filler: int) -> Sample:
        """Return the episode; one that failed before its first turn holds one token that nobody trains on."""
        segments = self.segments or [Segment([filler], by_model=False)]
        return Sample(
            self.prompt,
            segments,
            self.finish,  # type: ignore[arg-type]
            self.index,
            failure=self.failure,
            end=self.end,
            info=self.info,
            routing=self.routing,
        )


def give_back(engine: Engine, params: SamplingParams, sample_id: int) -> None:
    """Tell an engine that nobody will continue a sample: what it kept of it is given back."""
    if isinstance(engine, KeepsSamples):
        engine.forget(params.seed, sample_id)


def play_all(
    episodes: Rollout, prompts: Sequence[Prompt], n: int, ids: Sequence[int], progress: Callable[[int], None]
) -> list[Sample]:
    """Play n episodes for each prompt, in the order of the prompts; `ids` name the first sample of each."""

    async def group(prompt: Prompt, first: int) -> list[Sample]:
        samples = await episodes(prompt, range(first, first + n))
        progress(n)
        return samples

    groups = run_blocking(gathered([group(prompt, first) for prompt, first in zip(prompts, ids, strict=True)]))
    return [sample for group in groups for sample in group]


def share_prompts(samples: Sequence[Sample]) -> None:
    """Give samples whose prompts are equal one prompt object, which is what the learner packs once."""
    known: dict[tuple[Any, ...], Prompt] = {}
    for sample in samples:
        prompt, media = sample.prompt, sample.prompt.media
        if media is None or not media.videos:
            shown = () if media is None else tuple((image.size, image.tobytes()) for image in media.images)
            sample.prompt = known.setdefault((tuple(prompt.ids), shown), prompt)


async def gathered(episodes: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Run all to their end; the first error ends the others and is raised once they have ended."""
    tasks = [asyncio.create_task(episode) for episode in episodes]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
