"""Render messages with a model's chat template, in the form that this template can read.

Templates differ in what they accept: arguments of calls as objects or as texts of JSON, null or empty content beside
calls, a role for tool results or none, system messages or none. Which form a template wants is found once, by rendering
short conversations with marks in them.
"""

from __future__ import annotations

import datetime
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from whet.chat.messages import Message
from whet.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

DATE = datetime.datetime(2024, 7, 26)  # Llama's own default; prompts must not change at midnight, nor after a resume
_KNOWN_CODES = ("%Y", "%m", "%d", "%B", "%b", "%A", "%a", "%y", "%H", "%M", "%S", "%j")
_CODES = "".join(f" | replace('{code}', '{DATE.strftime(code)}')" for code in _KNOWN_CODES)
_PINNED_CLOCK = f"{{%- macro strftime_now(format) -%}}{{{{ format{_CODES} }}}}{{%- endmacro %}}"
MARK = f"Zq{secrets.token_hex(8)}"  # letters and digits, which templates do not escape; nobody can guess it


@dataclass(frozen=True, slots=True)
class Form:
    """Form of messages that a template reads."""

    parts: bool = False  # contents are lists of parts, also where they are text alone
    arguments_as_text: bool = False
    null_content: bool = False  # null rather than empty content beside calls
    tool_role: bool = True  # False: results are written as a user turn
    calls: bool = True  # False: calls are written as text
    reasoning: str = "reasoning_content"  # name of the field; "" for a place in the content


class Rendering:
    """A chat template with its tools and keys."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, tools: list[dict[str, Any]] | None, keys: dict[str, Any]
    ) -> None:
        """`keys` are variables of the template; `chat_template` replaces the tokenizer's own."""
        keys = dict(keys)
        self._tokenizer = tokenizer
        self._tools: list[Any] | None = list(tools) if tools else None
        self._template = keys.pop("chat_template", None)
        self.speaks_chat = bool(self._template or tokenizer.chat_template)
        self._keys = {"date_string": DATE.strftime("%d %b %Y")} | keys
        if self.speaks_chat:
            own = tokenizer.get_chat_template(self._template, self._tools)
            self._template = _PINNED_CLOCK + own if "strftime_now" in own else own
        self.form = self._find_form() if self.speaks_chat else Form()

    def render(self, messages: list[Message], is_open: bool, form: Form | None = None) -> str:
        """Return the text of messages; where it `is_open`, with the head of the policy's next turn."""
        shaped = _shaped(messages, form or self.form)
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    shaped,
                    tools=self._tools,
                    chat_template=self._template,
                    add_generation_prompt=is_open,
                    tokenize=False,
                    **self._keys,
                )
            )
        except Exception as error:  # a template is somebody's code, and raises what it likes
            raise UserError(f"the model's chat template refuses this chat ({str(error)[:500]}).") from error

    def render_all(self, chats: Iterable[tuple[list[Message], bool]]) -> list[str]:
        """Return the texts of chats, all in one form: the template's own, or calls as text if it refuses that one."""
        asked = list(chats)
        try:
            return [self.render(messages, is_open) for messages, is_open in asked]
        except UserError:
            if not self.form.calls:
                raise
        plain = replace(self.form, calls=False)
        return [self.render(messages, is_open, plain) for messages, is_open in asked]

    def _find_form(self) -> Form:
        """Return the form that shows all marks; a template that takes none is refused with its first real chat."""
        form = Form()
        user, said = {"role": "user", "content": MARK}, {"role": "assistant", "content": MARK}
        if self._shown([user, said, user], form) < 3:
            parts = replace(form, parts=True)
            form = parts if self._shown([user, said, user], parts) == 3 else form
        form = self._find_call_form(form)
        for name in ("reasoning_content", "thinking", "reasoning"):
            tried = replace(form, reasoning=name)
            turn = {"role": "assistant", "content": "a", "reasoning_content": MARK}
            if self._shown([user | {"content": "q"}, turn], tried) == 1 or self._shown(_with_call(turn), tried) == 3:
                return tried
        return replace(form, reasoning="")

    def _find_call_form(self, form: Form) -> Form:
        """Return the form of calls and results, with the fewest signs of a wrong one."""
        found: list[tuple[int, Form]] = []
        for as_text, null, role, calls in product((False, True), (False, True), (True, False), (True, False)):
            tried = replace(form, arguments_as_text=as_text, null_content=null, tool_role=role, calls=calls)
            chat = _with_call({"role": "assistant", "content": ""})
            if self._shown(chat, tried) == 2:
                text = self.render(chat, True, tried)
                wrong = text.count("None") + text.count('\\"') + 10 * (not role) + 20 * (not calls)
                found.append((wrong, tried))
        return min(found, key=lambda each: each[0])[1] if found else form

    def _shown(self, messages: list[Message], form: Form) -> int:
        """Return how many marks of messages the template writes, 0 if it raises."""
        try:
            return self.render(messages, True, form).count(MARK)
        except UserError:
            return 0


def _with_call(turn: Message) -> list[Message]:
    """Return a chat in which a turn calls a function, with marks in the argument and the result."""
    call = {"name": "f", "arguments": {"x": MARK}}
    turn = turn | {"tool_calls": [{"id": "abcdefghi", "type": "function", "function": call}]}
    result = {"role": "tool", "content": MARK, "tool_call_id": "abcdefghi", "name": "f"}
    return [{"role": "user", "content": "q"}, turn, result]


def _shaped(messages: list[Message], form: Form) -> list[Message]:
    """Return messages in a template's form; the given ones are not changed."""
    shaped: list[Message] = []
    for message in messages:
        message = _with_reasoning(message, form)
        calls = message.get("tool_calls")
        if calls and not form.calls:
            message = _with_calls_as_text(message)
        elif calls:
            message = dict(message)
            if form.arguments_as_text:
                message["tool_calls"] = [_with_text_arguments(call) for call in calls]
            if form.null_content and not message.get("content"):
                message["content"] = None
        elif message["role"] == "tool" and not form.tool_role:
            message = {"role": "user", "content": message["content"]}
            if shaped and shaped[-1].get("role") == "user" and isinstance(shaped[-1]["content"], str):
                last = shaped.pop()  # such templates want roles to alternate
                message["content"] = f"{last['content']}\n{message['content']}"
        shaped.append(message)
    return [_in_parts(message) for message in shaped] if form.parts else shaped


def _with_reasoning(message: Message, form: Form) -> Message:
    """Return a turn with its reasoning in the field that the template reads, or in the content."""
    reasoning = message.get("reasoning_content")
    if reasoning is None or form.reasoning == "reasoning_content":
        return message
    rest = {name: value for name, value in message.items() if name != "reasoning_content"}
    if form.reasoning:
        return rest | {form.reasoning: reasoning}
    return rest | {"content": f"<think>\n{reasoning}\n</think>\n\n{message.get('content') or ''}"}


def _in_parts(message: Message) -> Message:
    content = message.get("content")
    return message | {"content": [{"type": "text", "text": content}]} if isinstance(content, str) else message


def _with_text_arguments(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    if isinstance(function["arguments"], str):
        return call
    return call | {"function": function | {"arguments": json.dumps(function["arguments"], ensure_ascii=False)}}


def _with_calls_as_text(message: Message) -> Message:
    texts = [json.dumps(call["function"], ensure_ascii=False) for call in message["tool_calls"]]
    plain = {name: value for name, value in message.items() if name != "tool_calls"}
    return plain | {"content": "\n".join([message.get("content") or "", *texts]).lstrip("\n")}
