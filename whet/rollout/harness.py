"""Sample groups with a harness: a program of the user's that calls the policy over HTTP, one run for each sample."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from whet.chat.calls.format import USUAL_THOUGHT
from whet.chat.messages import Message, Parsed, assistant_message
from whet.envs.harness.calls import ChatCall, Reply
from whet.envs.harness.contents import RefusedError
from whet.envs.harness.programs import PLACE, Program, Started
from whet.envs.harness.scores import Scores
from whet.envs.harness.server import Gone, SessionServer
from whet.envs.host import EnvHost
from whet.envs.session import BAD_RESULT, RAISED, EnvFailure
from whet.rollout.conversation import Conversations, cannot_fit
from whet.rollout.engine import Engine, SamplingParams
from whet.rollout.episodes import Finish, Limits, Report, gathered, give_back, share_prompts
from whet.rollout.harness_row import row_of
from whet.rollout.sessions import Asked, BadImageError, Recording
from whet.rollout.single_turn import sample_whole
from whet.types import Prompt, Sample, Segment

Parse = Callable[[str], Parsed]


class HarnessEpisodes:
    """Runs the harness once for each sample of a prompt."""

    def __init__(
        self,
        engine: Engine,
        params: SamplingParams,
        harness: Harness,
        limits: Limits,
        finish: Finish,
        report: Report,
    ) -> None:
        """`params.max_tokens` is not used: `limits` say how long turns and responses may be."""
        self._engine, self._params = engine, replace(params, n=1)
        self._harness, self._limits, self._finish, self._report = harness, limits, finish, report

    async def __call__(self, prompt: Prompt, ids: range) -> list[Sample]:
        """Return the samples of these ids; a harness that fails costs its own sample only."""
        row, given = row_of(prompt)
        sessions = [
            HarnessSession(self._engine, self._params, self._harness, self._limits, prompt, sample_id, row, given)
            for sample_id in ids
        ]
        samples = await gathered([self._episode(prompt, ids, index, each) for index, each in enumerate(sessions)])
        share_prompts(samples)
        self._finish(samples)
        return samples

    async def _episode(self, prompt: Prompt, ids: range, index: int, session: HarnessSession) -> Sample:
        harness = self._harness
        key = harness.server.open(session)
        started = Started(harness.server.base_url, key, session.row)
        scores, failure = Scores(), None
        try:
            scores = await harness.program.run(harness.host, started, harness.seconds)
        except EnvFailure as error:
            failure = error
        finally:
            # 1. From here on nothing is recorded, whatever of the harness still runs.
            await asyncio.shield(harness.server.end(key))
            give_back(self._engine, self._params, ids.start + index)
        failure = session.judge(failure, scores, harness.needs_reward)
        if failure is not None:
            self._report(prompt, failure)
        return session.sample(index, scores, failure, harness.conversations.filler)


class Harness:
    """The harness of a run, with everything that its samples share."""

    def __init__(
        self,
        program: Program,
        server: SessionServer,
        host: EnvHost,
        conversations: Conversations,
        parse: Parse,
        seconds: float,
        needs_reward: bool,
        think: Parse = USUAL_THOUGHT,
    ) -> None:
        """`parse` finds calls in turns, `think` reasoning alone.

        `needs_reward` is True where no reward function scores samples.
        """
        self.program, self.server, self.host = program, server, host
        self.conversations, self.parse, self.think = conversations, parse, think
        self.seconds, self.needs_reward = seconds, needs_reward


class HarnessSession:
    """One sample: its calls are answered in the order in which they come, one at a time."""

    def __init__(
        self,
        engine: Engine,
        params: SamplingParams,
        harness: Harness,
        limits: Limits,
        prompt: Prompt,
        sample_id: int,
        row: dict[str, Any],
        given: Sequence[bytes] = (),
    ) -> None:
        """`row` is what the harness is told of the prompt, `given` the files of the images in it."""
        self._engine, self._params, self._harness, self._limits = engine, params, harness, limits
        self._sample_id = sample_id
        self.row = row
        self.posted: Scores | None = None
        shared = harness.conversations
        self._recording = Recording(prompt, shared.template, shared.spell, shared.images, given)
        self._media = prompt.media  # of the row
        self._lock = asyncio.Lock()
        self._finish: Any = "stop"
        self._end: str | None = None  # the limit that a call ran into
        self._told_of_cut = False  # True if the latest answer said that its turn was cut

    async def chat(self, call: ChatCall, gone: Gone) -> Reply:
        """Answer a call of the harness."""
        async with self._lock:
            asked = self._ask(call)
            sample = await sample_whole(
                self._engine, self._recording.start(asked), self._call_params(call, asked), self._sample_id
            )
            if await gone():
                raise RefusedError(400, "the client has left")
            turn = self._recording.take(asked, sample, lambda drawn: self._message(drawn, call))
            self._finish = sample.finish
            self._told_of_cut = call.marks_cuts and sample.finish == "length"
            number = len(self._recording.turns)
            name = f"chatcmpl-{number}-{secrets.token_hex(8)}"
            stop = _stop_in(self._harness.conversations.text(turn.drawn), call.stop)
            return Reply(name, turn.messages[-1], sample.finish, len(asked.context), len(turn.drawn), stop)

    async def count(self, call: ChatCall) -> int:
        """Return the number of tokens that the policy would read for a call."""
        async with self._lock:
            return len(self._tokens(call).context)

    def judge(self, failure: EnvFailure | None, scores: Scores, needs_reward: bool) -> EnvFailure | None:
        """Return the failure of the sample once its harness has ended; one that ran into a limit has not failed."""
        if not self._recording.turns:
            return failure or EnvFailure(BAD_RESULT, PLACE, "ended without having called the model")
        if failure is not None and failure.kind == RAISED and self._told_of_cut:
            self._end = "length"
        if self._end is not None:
            return None
        if (
            failure is None
            and needs_reward
            and scores.reward is None
            and (not self.posted or self.posted.reward is None)
        ):
            return EnvFailure(
                BAD_RESULT, PLACE, "gave no reward, and there is no worker.reward.reward_function to score the sample"
            )
        return failure

    def sample(self, index: int, scores: Scores, failure: EnvFailure | None, filler: int) -> Sample:
        """Return what was recorded, with the reward that was returned or else posted."""
        given = scores if scores.reward is not None or self.posted is None else self.posted
        segments = list(self._recording.segments) or [Segment([filler], by_model=False)]
        end = given.end or self._end or "done"
        if failure is not None:
            end = f"{PLACE} {failure.kind}"
        elif given.reward is not None:
            segments[-1] = replace(segments[-1], reward=given.reward)
        return Sample(
            self._recording.prompt,
            segments,
            self._finish,
            index,
            failure=None if failure is None else f"env {failure.kind}",
            end=end,
            info={} if failure is not None else dict(given.info),
        )

    def _ask(self, call: ChatCall) -> Asked:
        """Return a call as tokens; `RefusedError` for one that the template or a limit forbids."""
        recording, limits = self._recording, self._limits
        if len(recording.turns) >= limits.turns:
            self._end = "max_turns"
            raise RefusedError(400, f"worker.rollout.max_turns={limits.turns} calls were answered", "max_turns")
        longest = self._harness.conversations.longest
        if cannot_fit(call.messages, longest + limits.tokens):
            self._end = "length" if recording.turns else self._end
            raise RefusedError(
                400,
                f"the messages are longer than data.max_prompt_length={longest} and "
                f"data.max_response_length={limits.tokens} allow",
                "context_length_exceeded",
            )
        asked = self._tokens(call)
        if not recording.turns and len(asked.context) > longest:
            raise RefusedError(
                400,
                f"the messages are {len(asked.context)} tokens, more than data.max_prompt_length={longest}",
                "context_length_exceeded",
            )
        if recording.turns and len(recording) + len(asked.added) >= limits.tokens:
            self._end = "length"
            raise RefusedError(
                400,
                f"the sample has no room for another turn: data.max_response_length={limits.tokens}",
                "context_length_exceeded",
            )
        return asked

    def _tokens(self, call: ChatCall) -> Asked:
        self._check_images(call)
        try:
            return self._recording.ask(call.messages, call.tools, call.images)
        except BadImageError as error:
            raise RefusedError(400, f"messages: {error}", "unsupported_value") from error
        except Exception as error:  # templates are code of others, and raise what they like
            said = str(error).strip().splitlines()[0][:300] if str(error).strip() else ""
            raise RefusedError(
                400, f"the chat template refuses the messages: {type(error).__name__}: {said}"
            ) from error

    def _check_images(self, call: ChatCall) -> None:
        """Refuse calls in which a text stands where an image was meant."""
        if self._media is not None and self._media.videos:
            raise RefusedError(400, "the row has a video, which a harness cannot send; leave such rows out")
        if self._media is None or call.images:
            return
        if any(isinstance(each["content"], str) and "<image>" in each["content"] for each in call.messages):
            raise RefusedError(
                400, "<image> in a text is no image: send the row's as image_url parts, as row['messages'] has them"
            )

    def _call_params(self, call: ChatCall, asked: Asked) -> SamplingParams:
        limits = self._limits
        room = limits.tokens - len(self._recording) - (len(asked.added) if self._recording.turns else 0)
        most = min(room, limits.turn_tokens or room, call.max_tokens or room)
        stop = tuple(dict.fromkeys([*self._params.stop, *call.stop]))
        return replace(self._params, max_tokens=most, stop=stop, keep=True)

    def _message(self, drawn: list[int], call: ChatCall) -> Message:
        """Return a turn as the harness reads it: calls taken out where tools were offered, stop texts cut off.

        Reasoning beside calls is taken out too; elsewhere only for an API that has a place for it.
        """
        text = self._harness.conversations.text(drawn)
        stop = _stop_in(text, call.stop)
        text = text if stop is None else text.partition(stop)[0]
        if call.tools:
            parsed = self._harness.parse(text)
            if parsed.calls:
                return assistant_message(parsed.content, parsed.reasoning, parsed.calls)
        if call.splits:
            parsed = self._harness.think(text)
            return assistant_message(parsed.content, parsed.reasoning or None)
        return {"role": "assistant", "content": text}


def _stop_in(text: str, stops: tuple[str, ...]) -> str | None:
    """Return the stop text that is complete first, as an engine sees it; None where there is none."""
    found = [(text.find(stop) + len(stop), stop) for stop in stops if stop in text]
    return min(found)[1] if found else None
