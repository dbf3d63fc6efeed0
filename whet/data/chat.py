"""The prompt column as a chat, and a chat as text.

A prompt is plain text or a list of `{role, content}` turns. Either becomes a list of turns here, then the text that
the model's chat template makes of it. Models without a chat template read the plain text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import jinja2

from whet.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Message = dict[str, Any]


def as_messages(prompt: Any, uid: str, key: str) -> list[Message]:
    """The turns of a prompt column: a text is one user turn, a chat is checked and its text parts joined."""
    if prompt is None or prompt == [] or (isinstance(prompt, str) and not prompt.strip()):
        raise UserError(f"{uid}: the prompt (column {key!r}) is empty. Fill it in or remove the row.")
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    if not isinstance(prompt, list):
        raise UserError(
            f"{uid}: the prompt (column {key!r}) is a {type(prompt).__name__}; it must be text or a list of "
            "{role, content} turns."
        )
    messages = [_message(turn, f"{uid}: turn {number}") for number, turn in enumerate(prompt, start=1)]
    if messages[-1]["role"] == "assistant":
        raise UserError(
            f"{uid}: the chat in column {key!r} ends with an assistant turn, which the model is to write itself. "
            "Remove that turn."
        )
    last_user_turn(messages, uid)
    return messages


def last_user_turn(messages: list[Message], uid: str) -> Message:
    """The user's latest turn: the one a prompt template rewrites."""
    for message in reversed(messages):
        if message["role"] == "user":
            return message
    raise UserError(f"{uid}: the chat has no turn with the role user.")


def _message(turn: Any, where: str) -> Message:
    if not isinstance(turn, dict) or not isinstance(turn.get("role"), str) or "content" not in turn:
        raise UserError(f"{where} of the chat must be an object with role and content.")
    # Parquet gives every turn every field; templates ask whether a field such as tool_calls is there at all.
    message = {name: value for name, value in turn.items() if value is not None}
    message["content"] = _text_of(turn["content"], where)
    if not message["content"].strip() and turn["role"] == "user":
        raise UserError(f"{where} of the chat is empty. Fill it in or remove the row.")
    return message


def _text_of(content: Any, where: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise UserError(f"{where}: content must be text or a list of parts, it is a {type(content).__name__}.")
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("image", "image_url", "video"):
            raise UserError(f"{where} holds an {kind} part: image and video prompts are not in this version yet.")
        if kind != "text" or not isinstance(part.get("text"), str):
            raise UserError(f"{where}: each part of the content must be an object with type text and a text.")
        texts.append(part["text"])
    return "".join(texts)


class ChatTemplate:
    """How this tokenizer's model wants a chat written; `override` replaces the template it came with."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, override: str | None = None) -> None:
        self._tokenizer = tokenizer
        self._override = override
        self.speaks_chat = bool(override or tokenizer.chat_template)

    def write(self, chats: list[list[Message]], uids: list[str]) -> list[str]:
        """The texts that the model continues; uids name the rows in errors."""
        if not self.speaks_chat:
            return [self._plain(messages, uid) for messages, uid in zip(chats, uids)]
        try:
            return self._apply(chats)
        except jinja2.TemplateSyntaxError as error:
            raise UserError(f"{self._name()} is not valid Jinja (line {error.lineno}: {error.message}).") from error
        except jinja2.TemplateError as error:
            if len(chats) == 1:
                raise UserError(f"{uids[0]}: {self._name()} refuses this chat ({error}).") from error
            # One chat of the batch was refused; writing them one by one finds which.
            return [self.write([messages], [uid])[0] for messages, uid in zip(chats, uids)]

    def _apply(self, chats: list[list[Message]]) -> list[str]:
        texts = self._tokenizer.apply_chat_template(
            chats, chat_template=self._override, add_generation_prompt=True, tokenize=False
        )
        return cast("list[str]", texts)

    def _plain(self, messages: list[Message], uid: str) -> str:
        if len(messages) > 1:
            raise UserError(
                f"{uid}: the prompt is a chat of {len(messages)} turns, but the tokenizer has no chat template. "
                "Give one with data.override_chat_template, or use plain text prompts."
            )
        return messages[0]["content"]

    def _name(self) -> str:
        return "data.override_chat_template" if self._override else "the model's chat template"
