"""Calls of one harness as a tree of turns: the tokens that the policy reads for each call.

A harness sends its whole conversation with every call. Where that begins with a recorded turn, the ids of the turn are
taken as they were drawn, and only what the new messages add is encoded. Everything else is a new branch: a prompt of
its own, with the turns in it as context. Each turn is trained on once, where it was drawn.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from whet.chat.messages import Message
from whet.chat.turns import TurnTemplate
from whet.types import Prompt, Sample, Segment

Tools = list[dict[str, Any]] | None
Meaning = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """A recorded turn of the policy."""

    messages: list[Message]  # the conversation that ends with it
    meanings: list[Meaning]  # of the messages
    tools: str
    ids: list[int]  # all that was read and drawn in its branch
    drawn: list[int]


@dataclass(frozen=True, slots=True)
class Asked:
    """A call as tokens."""

    messages: list[Message]
    meanings: list[Meaning]
    tools: str
    context: list[int]  # all tokens that the policy reads
    added: list[int]  # those that stand behind the sample so far; the whole context in a new branch
    restart: bool  # True in a new branch


class Recording:
    """The turns of one sample. Calls are recorded in the order in which they were answered."""

    def __init__(
        self, prompt: Prompt, template: Callable[[Tools], TurnTemplate], spell: Callable[[list[int]], str]
    ) -> None:
        """`prompt` is the row's; the first call that is recorded takes its place. `spell` decodes ids."""
        self.prompt, self._template, self._spell = prompt, template, spell
        self.turns: list[Turn] = []
        self.segments: list[Segment] = []

    def __len__(self) -> int:
        return sum(len(segment.ids) for segment in self.segments)

    def ask(self, messages: list[Message], tools: Tools) -> Asked:
        """Return the tokens of a call; nothing is recorded yet. Raises what the chat template raises."""
        template, key = self._template(tools), json.dumps(tools, sort_keys=True, default=str)
        meanings = [_meaning(message) for message in messages]
        parent = self._parent(meanings, key)
        if parent is None:
            ids = self._first(messages, tools, template)
            return Asked(messages, meanings, key, ids, ids, bool(self.turns))
        # As the policy wrote them: a harness may replay turns with other white space, or without their reasoning.
        known = len(parent.messages)
        whole = [*parent.messages, *messages[known:]]
        appended = template.append(parent.messages, parent.drawn, messages[known:])
        if appended.rewritten:
            return Asked(whole, meanings, key, appended.ids, appended.ids, True)
        context = parent.ids + appended.ids
        is_last = parent is self.turns[-1]
        return Asked(whole, meanings, key, context, appended.ids if is_last else context, not is_last)

    def start(self, asked: Asked) -> Prompt | Sample:
        """Return what the engine continues."""
        if not self.turns:
            return self._prompt(asked)
        added = Segment(asked.added, by_model=False, restart=asked.restart)
        return Sample(self.prompt, [*self.segments, added], "stop")

    def take(self, asked: Asked, sample: Sample, read: Callable[[list[int]], Message]) -> Turn:
        """Record the turn that an engine wrote behind `start(asked)`; `read` makes a message of its ids."""
        if not self.turns:
            self.prompt = self._prompt(asked)
            before = 0
        else:
            before = len(self) + len(asked.added)
        drawn = sample.ids[before:]
        message = read(drawn)
        self.segments = list(sample.segments)
        turn = Turn(
            [*asked.messages, message],
            [*asked.meanings, _meaning(message)],
            asked.tools,
            asked.context + drawn,
            drawn,
        )
        self.turns.append(turn)
        return turn

    def _parent(self, meanings: list[Meaning], tools: str) -> Turn | None:
        """Return the turn with the longest conversation that the call goes on with; of several, the latest."""
        found = None
        for turn in self.turns:
            size = len(turn.meanings)
            fits = size < len(meanings) and turn.tools == tools and turn.meanings == meanings[:size]
            if fits and (found is None or size >= len(found.meanings)):
                found = turn
        return found

    def _first(self, messages: list[Message], tools: Tools, template: TurnTemplate) -> list[int]:
        if tools is None and messages == self.prompt.messages and self.prompt.media is None:
            return list(self.prompt.ids)  # the row's prompt as it is
        return template.prompt(messages)

    def _prompt(self, asked: Asked) -> Prompt:
        if asked.context == self.prompt.ids:
            return self.prompt
        text = self._spell(asked.context)
        return replace(self.prompt, ids=asked.context, text=text, media=None, messages=asked.messages)


def _meaning(message: Message) -> Meaning:
    """Return what two messages have in common that stand for the same: reasoning and spelling of arguments aside."""
    text = message.get("content") or ""
    calls = tuple(
        (call["function"]["name"], json.dumps(call["function"]["arguments"], sort_keys=True))
        for call in message.get("tool_calls") or ()
    )
    is_turn = message["role"] == "assistant"
    return message["role"], text.strip() if is_turn else text, calls, message.get("tool_call_id")
