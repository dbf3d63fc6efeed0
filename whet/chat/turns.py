"""Token-exact turns: what stands between two turns of the policy is the difference that new messages make.

The policy's tokens are never decoded and encoded again. To find what follows a turn, it is rendered with a mark at the
end of each of its parts (reasoning, content, calls) and the new messages behind it; the text behind the last mark, from
the end token that the policy drew, is encoded and appended. What a template rewrites of earlier turns (reasoning that
it drops, say) shows as a missing mark or a changed beginning: then the result is a whole new prompt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from whet.chat.encoding import TurnEncoder
from whet.chat.messages import Message
from whet.chat.rendering import MARK, Rendering
from whet.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_WIDTH = len(MARK) + 5  # all marks are of one length
REASONING, CONTENT = f"{MARK}r0000", f"{MARK}c0000"
_LAST_ARGUMENT = "zz"  # templates that sort arguments put it last too
_EMPTY_THOUGHT = re.compile(r"\s*<think>\s*</think>")
_CLOSED_THOUGHT = "</think>"


@dataclass(frozen=True, slots=True)
class Appended:
    """Tokens that lead from one turn of the policy's to its next."""

    ids: list[int]  # to put behind what the engine holds, up to the head of the next turn; or a whole new prompt
    rewritten: bool  # True if the template renders earlier turns differently now: `ids` is then a whole new prompt
    reason: str = ""  # why it is: "history", "reasoning", "turn", "order" or "end"
    escaped: int = 0  # spellings of special tokens in foreign text that were encoded as ordinary characters
    text: str = ""  # what `ids` encode, for processors that expand images in it


class TurnTemplate:
    """The chat template of one model, one list of tools and one set of template keys; shared by all episodes.

    Invariant: prompt, written ids and appended ids, one after the other, are what the engine reads and what is trained
    on; unless `rewritten`, they decode to what the template makes of the conversation, for turns in its own spelling.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        tools: list[dict[str, Any]] | None = None,
        *,
        ends: Iterable[int] = (),
        split: bool = True,
        **template_keys: Any,
    ) -> None:
        """`ends` are tokens that end a turn besides the tokenizer's own; `chat_template` replaces its template.

        With `split` false earlier turns stay as they were drawn, whatever the template would make of them.
        """
        self._tokenizer, self._split = tokenizer, split
        self._rendering = Rendering(tokenizer, tools, template_keys)
        self._encoder = TurnEncoder(tokenizer)
        own = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
        self.ends = frozenset([*own, *ends])
        self.ends |= self._usual_end()

    @property
    def speaks_chat(self) -> bool:
        """True if there is a template; without one messages are plain text, one behind the other."""
        return self._rendering.speaks_chat

    def prompt(self, messages: list[Message]) -> list[int]:
        """Return the tokens before the policy's first turn."""
        return self._whole(messages).ids

    def append(self, messages: list[Message], written: Sequence[int], added: list[Message]) -> Appended:
        """Return what leads to the policy's next turn.

        `messages` is the conversation with the policy's turn as its last, as parsed; `written` are the ids drawn in
        that turn, with or without an end token; `added` are the messages that follow.
        """
        if not self._rendering.speaks_chat:
            return self._plain(added)
        shielded, stands = self._encoder.shield([*messages, *added])
        place = len(messages) - 1
        history, turn, new = shielded[:place], shielded[place], shielded[place + 1 :]
        text = self._encoder.spell(list(written))
        before, full = self._rendering.render_all([(history, True), (shielded, True)])
        tail: str | None
        reason = ""
        if full.startswith(before + text):  # as the template spells it: most turns of most policies
            tail = full[len(before + text) :]
        else:
            tail, reason = self._behind_marks(history, turn, new, written, text)
        if tail is None or (reason and self._split):
            return self._whole([*messages, *added], reason or "end")
        return Appended(self._encoder.encode(tail, stands), False, "", _count(tail, stands), _restored(tail, stands))

    def _behind_marks(
        self, history: list[Message], turn: Message, new: list[Message], written: Sequence[int], text: str
    ) -> tuple[str | None, str]:
        """Return what follows a turn in a spelling of the policy's own, and how the template rewrites it, if so."""
        marked, marks = _marked(turn)
        before, alone, full = self._rendering.render_all(
            [(history, True), ([*history, marked], False), ([*history, marked, *new], True)]
        )
        reason = _rewriting(before, alone, full, marks, text, turn)
        last = max(full.rfind(mark) for mark in marks)
        return (self._unwritten(full[last + _WIDTH :], written, text) if last >= 0 else None), reason

    def _unwritten(self, rest: str, written: Sequence[int], text: str) -> str | None:
        """Return the part of `rest`, the text behind a turn, that the policy did not draw; None if it ended otherwise.

        1. The turn ended with a token that stands in `rest`, before any other end: what is behind it is missing.
        2. It ended with an end token that the template does not write here: None.
        3. It was cut: the close of the turn is missing, but for what of it was drawn.
        """
        ends = [self._encoder.texts[end] for end in self.ends if end in self._encoder.texts]
        last = written[-1] if written else None
        closes = min((rest.find(end) for end in ends if end in rest), default=len(rest))
        drawn = self._encoder.texts.get(last) if last is not None else None
        if drawn is not None and 0 <= rest.find(drawn) <= closes:
            return rest[rest.find(drawn) + len(drawn) :]
        if last in self.ends:
            return None
        return rest[_overlap(text, rest[:closes]) :]

    def _whole(self, messages: list[Message], reason: str = "") -> Appended:
        """Return a prompt of all messages."""
        if not self._rendering.speaks_chat:
            return self._plain(messages, begins=True)
        shielded, stands = self._encoder.shield(messages)
        (text,) = self._rendering.render_all([(shielded, True)])
        ids = self._encoder.encode(text, stands, begins=True)
        return Appended(ids, bool(reason), reason, _count(text, stands), _restored(text, stands))

    def _plain(self, messages: list[Message], begins: bool = False) -> Appended:
        """Return the contents of messages one behind the other, each encoded by itself."""
        texts = [str(message.get("content") or "") for message in messages]
        ids: list[int] = []
        for number, text in enumerate(texts):
            special = begins and number == 0
            ids += self._tokenizer(text, add_special_tokens=special, truncation=False, verbose=False)["input_ids"]
        return Appended(ids, False, text="".join(texts))

    def _usual_end(self) -> set[int]:
        """Return the token that the template writes first behind a plain turn, if it writes none of the known ends."""
        if not self._rendering.speaks_chat:
            return set()
        turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": CONTENT}]
        try:
            text = self._rendering.render([*turns, {"role": "user", "content": "q"}], True)
        except UserError:  # a real conversation that it refuses too is refused with its own words
            return set()
        rest = text[text.rfind(CONTENT) + len(CONTENT) :].lstrip()
        texts = self._encoder.texts
        if any(texts[end] in rest for end in self.ends if texts.get(end)):
            return set()
        found = [token for token, each in texts.items() if each and rest.startswith(each)]
        return set(sorted(found, key=lambda token: len(texts[token]))[-1:])


def _marked(turn: Message) -> tuple[Message, list[str]]:
    """Return a turn with a mark at the end of each of its parts, and these marks in the order of the parts."""
    marked, marks = dict(turn), []
    content = turn.get("content") or ""
    if turn.get("reasoning_content"):
        marked["reasoning_content"] = turn["reasoning_content"] + REASONING
        marks.append(REASONING)
    elif isinstance(content, str) and _CLOSED_THOUGHT in content and not _EMPTY_THOUGHT.match(content):
        thought, _, said = content.rpartition(_CLOSED_THOUGHT)
        content = f"{thought.rstrip()}{REASONING}\n{_CLOSED_THOUGHT}{said}"
        marked["content"] = content
        marks.append(REASONING)
    calls = turn.get("tool_calls") or []
    if content and not isinstance(content, str):
        marked["content"] = [*content, {"type": "text", "text": CONTENT}]
        marks.append(CONTENT)
    elif content.strip() or not (calls or marks):
        marked["content"] = content.rstrip() + CONTENT
        marks.append(CONTENT)
    if calls:
        marked["tool_calls"] = [_marked_call(call, number) for number, call in enumerate(calls)]
        marks += [_call_mark(number) for number in range(len(calls))]
    return marked, marks


def _call_mark(number: int) -> str:
    return f"{MARK}f{number:04d}"


def _marked_call(call: dict[str, Any], number: int) -> dict[str, Any]:
    function = call["function"]
    arguments = function.get("arguments")
    if not isinstance(arguments, dict):
        arguments = {"value": arguments}
    return call | {"function": function | {"arguments": arguments | {_LAST_ARGUMENT: _call_mark(number)}}}


def _rewriting(before: str, alone: str, full: str, marks: list[str], text: str, parsed: Message) -> str:
    """Return how the template changes what the engine holds: "" if it does not.

    `before` is the prompt of the turn, `alone` ends with the marked turn, `full` with what follows it; `text` is the
    turn as it was drawn, `parsed` as it was parsed.
    """
    if not full.startswith(before):
        return "history"
    turn = full[len(before) :]
    if REASONING in marks and REASONING not in turn:
        return "reasoning"
    if any(mark not in turn for mark in marks):
        return "turn"
    # Some templates write text behind calls; others do so only once results follow, which is another order.
    usual = sorted(marks, key=alone.find) if all(mark in alone for mark in marks) else marks
    if usual != sorted(marks, key=turn.find) or (usual != marks and _begins_with_text(text, parsed)):
        return "order"
    if REASONING not in marks and _EMPTY_THOUGHT.match(text) and not _EMPTY_THOUGHT.match(turn):
        return "reasoning"
    # The turn alone may have an empty thought that it has no longer, and that this policy did not draw.
    first = alone[len(before) :]
    if not _EMPTY_THOUGHT.match(text) and not _EMPTY_THOUGHT.match(turn):
        first = _EMPTY_THOUGHT.sub("", first, count=1).lstrip()
    written, kept = first.partition(usual[-1])[0], turn.partition(usual[-1])[0]
    return "" if written.strip() == kept.strip() else "turn"


def _begins_with_text(text: str, turn: Message) -> bool:
    """True if a turn was drawn with its text, or its reasoning, before its calls."""
    names = [call["function"]["name"] for call in turn.get("tool_calls") or ()]
    said = [str(turn.get(name) or "").strip() for name in ("reasoning_content", "content")]
    return any(0 <= text.find(each) < text.find(names[0]) for each in said if each and names)


def _overlap(text: str, close: str) -> int:
    """Return how many characters of a turn's close stand at the end of the drawn text already."""
    lines = close.split()
    if lines and text.rstrip().endswith(lines[-1]):
        return len(close)
    return next((size for size in range(min(len(close), len(text)), 0, -1) if text.endswith(close[:size])), 0)


def _count(text: str, stands: dict[str, str]) -> int:
    return sum(text.count(name) for name in stands)


def _restored(text: str, stands: dict[str, str]) -> str:
    for name, spelt in stands.items():
        text = text.replace(name, spelt)
    return text
