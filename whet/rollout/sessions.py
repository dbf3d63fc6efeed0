"""Calls of one harness as a tree of turns: the tokens that the policy reads for each call.

A harness sends its whole conversation with every call. Where that begins with a recorded turn, the ids of the turn are
taken as they were drawn, and only what the new messages add is encoded. Everything else is a new branch: a prompt of
its own, with the turns in it as context. Each turn is trained on once, where it was drawn.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from whet.chat.messages import Message
from whet.chat.turns import TurnTemplate
from whet.rollout.conversation import ImageReader
from whet.types import Media, Prompt, Sample, Segment

Tools = list[dict[str, Any]] | None
Meaning = tuple[Any, ...]


class BadImageError(Exception):
    """Images of a call that cannot be read, or do not fit its text; the message says why."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A recorded turn of the policy."""

    messages: list[Message]  # the conversation that ends with it
    meanings: list[Meaning]  # of the messages
    tools: str
    ids: list[int]  # all that was read and drawn in its branch
    drawn: list[int]
    images: list[Any]  # all that were seen in its branch


@dataclass(frozen=True, slots=True)
class Asked:
    """A call as tokens."""

    messages: list[Message]
    meanings: list[Meaning]
    tools: str
    context: list[int]  # all tokens that the policy reads
    added: list[int]  # those that stand behind the sample so far; the whole context in a new branch
    restart: bool  # True in a new branch
    images: list[Any]  # all that the policy sees, in the size that it does
    shown: list[Any]  # those whose places are in `added`


class Recording:
    """The turns of one sample. Calls are recorded in the order in which they were answered."""

    def __init__(
        self,
        prompt: Prompt,
        template: Callable[[Tools], TurnTemplate],
        spell: Callable[[list[int]], str],
        reader: ImageReader | None = None,
        given: Sequence[bytes] = (),
    ) -> None:
        """`prompt` is the row's; the first call that is recorded takes its place. `spell` decodes ids.

        `reader` is None for a text model; `given` are the files that the harness got of the row's images, which are in
        the size that the model sees.
        """
        self.prompt, self._template, self._spell, self._reader = prompt, template, spell, reader
        self._started = prompt  # of the first call, until it is recorded
        self.turns: list[Turn] = []
        self.segments: list[Segment] = []
        own = zip(given, prompt.media.images if prompt.media is not None else ())
        self._fitted: dict[str, Any] = {_digest(data): image for data, image in own}

    def __len__(self) -> int:
        return sum(len(segment.ids) for segment in self.segments)

    def ask(self, messages: list[Message], tools: Tools, sent: Sequence[bytes] = ()) -> Asked:
        """Return the tokens of a call; nothing is recorded yet. Raises what the chat template raises.

        `sent` are the files of the images in the messages, in order; `BadImageError` for one that cannot be read.
        """
        template, key = self._template(tools), json.dumps(tools, sort_keys=True, default=str)
        digests = [_digest(data) for data in sent]
        named = iter(digests)
        meanings = [_meaning(message, named) for message in messages]
        images = [self._fit(digest, data) for digest, data in zip(digests, sent)]
        parent = self._parent(meanings, key)
        if parent is None:
            ids = self._expanded(self._first(messages, tools, template, images), images)
            return Asked(messages, meanings, key, ids, ids, bool(self.turns), images, images)
        # As the policy wrote them: a harness may replay turns with other white space, or without their reasoning.
        known = len(parent.messages)
        whole, news = [*parent.messages, *messages[known:]], self._written(messages[known:])
        appended = template.append(self._written(parent.messages), parent.drawn, news)
        shown = images if appended.rewritten else images[len(parent.images) :]
        added = self._expanded(appended.ids, shown)
        if appended.rewritten:
            return Asked(whole, meanings, key, added, added, True, images, images)
        context = parent.ids + added
        if parent is self.turns[-1]:
            return Asked(whole, meanings, key, context, added, False, images, shown)
        return Asked(whole, meanings, key, context, context, True, images, images)

    def start(self, asked: Asked) -> Prompt | Sample:
        """Return what the engine continues."""
        if not self.turns:
            self._started = self._prompt(asked)
            return self._started
        added = Segment(asked.added, by_model=False, restart=asked.restart, media=self._media(asked.shown))
        return Sample(self.prompt, [*self.segments, added], "stop")

    def take(self, asked: Asked, sample: Sample, read: Callable[[list[int]], Message]) -> Turn:
        """Record the turn that an engine wrote behind `start(asked)`; `read` makes a message of its ids."""
        if not self.turns:
            self.prompt = self._started
            before = 0
        else:
            before = len(self) + len(asked.added)
        drawn = sample.ids[before:]
        message = read(drawn)
        self.segments = list(sample.segments)
        turn = Turn(
            [*asked.messages, message],
            [*asked.meanings, _meaning(message, iter(()))],
            asked.tools,
            asked.context + drawn,
            drawn,
            asked.images,
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

    def _first(self, messages: list[Message], tools: Tools, template: TurnTemplate, images: list[Any]) -> list[int]:
        if tools is None and messages == self.prompt.messages and self.prompt.media is None and not images:
            return list(self.prompt.ids)  # the row's prompt as it is
        return template.prompt(self._written(messages))

    def _prompt(self, asked: Asked) -> Prompt:
        own = [] if self.prompt.media is None else self.prompt.media.images
        if asked.context == self.prompt.ids and _same(asked.images, own):
            return self.prompt
        text, media = self._spell(asked.context), self._media(asked.images)
        return replace(self.prompt, ids=asked.context, text=text, media=media, messages=asked.messages)

    def _written(self, messages: list[Message]) -> list[Message]:
        """Return messages as the template reads them; `<image>` in a text stays as it is."""
        if self._reader is None:
            return messages
        return [each if isinstance(each.get("content"), str) else self._reader.written([each])[0] for each in messages]

    def _fit(self, digest: str, data: bytes) -> Any:
        reader = self._reader
        if reader is None:
            raise BadImageError("a message has an image, and the model reads text only")
        if digest not in self._fitted:
            self._fitted[digest] = _named(lambda: reader.fitted(data))
        return self._fitted[digest]

    def _expanded(self, ids: list[int], images: list[Any]) -> list[int]:
        reader = self._reader
        return ids if reader is None else _named(lambda: reader.expanded(ids, images))

    def _media(self, images: list[Any]) -> Media | None:
        return self._reader.media(images) if self._reader is not None else None


def _named(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as error:  # decoders of pictures raise nearly anything
        raise BadImageError(str(error)) from error


def _same(images: list[Any], others: list[Any]) -> bool:
    """True if both are the same objects: those of the row, which came back as they were given."""
    return len(images) == len(others) and all(one is other for one, other in zip(images, others))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _meaning(message: Message, images: Iterator[str]) -> Meaning:
    """Return what two messages have in common that stand for the same: reasoning and spelling of arguments aside.

    `images` yields a name for each image in the message.
    """
    content = message.get("content") or ""
    parts = (content,) if isinstance(content, str) else tuple(part.get("text") or next(images) for part in content)
    calls = tuple(
        (call["function"]["name"], json.dumps(call["function"]["arguments"], sort_keys=True))
        for call in message.get("tool_calls") or ()
    )
    said = tuple(part.strip() for part in parts) if message["role"] == "assistant" else parts
    return message["role"], said, calls, message.get("tool_call_id")
