"""The prompt column as a chat, and a chat as text.

A prompt is plain text or a list of `{role, content}` turns. Either becomes a list of turns here, then the text that
the model's chat template makes of it. Models without a chat template read the plain text.

An image is `<image>` in a turn's text, and a part of its own for the chat templates of models that see; videos alike.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import jinja2
from jinja2.sandbox import SecurityError
from transformers.utils.chat_template_utils import render_jinja_template

from whet.config.files import is_template_text
from whet.data.columns import Sources
from whet.data.files import Resolve
from whet.data.formats import json_kind
from whet.data.template import MOST_CHARACTERS, TimeLimit, TooLongError, check_chat_template, check_text
from whet.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from whet.model.processor import Processor

IMAGE, VIDEO = "<image>", "<video>"
PLACE = re.compile(f"({IMAGE}|{VIDEO})")
MARK = re.compile(r"\{%-?\s*generation\s*-?%\}")
LONGEST = 2.0  # seconds for one chat, or for a batch of them before they are written one by one
Message = dict[str, Any]
Span = tuple[int, int]  # of characters: from, to


def as_messages(prompt: Any, uid: str, key: str, inline: Sources | None = None) -> list[Message]:
    """The turns of a prompt column: a text is one user turn, a chat is checked and its parts joined.

    Images and videos that stand in the chat itself go into `inline`; without it they are refused.
    """
    if prompt is None or prompt == [] or (isinstance(prompt, str) and not prompt.strip()):
        raise UserError(f"{uid}: the prompt (column {key!r}) is empty. Fill it in or remove the row.")
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    if not isinstance(prompt, list):
        raise UserError(
            f"{uid}: the prompt (column {key!r}) is a {json_kind(prompt)}; it must be text or a list of "
            "{role, content} turns."
        )
    from whet.data.messages import read_message  # a text is no list of turns

    messages = [read_message(turn, f"{uid}: turn {number}", inline) for number, turn in enumerate(prompt, start=1)]
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


def template_text(value: str | None, resolve: Resolve) -> str | None:
    """The text of `data.override_chat_template`, which is given inline or as a file."""
    if not value:
        return None
    if is_template_text(value):
        return value
    path = Path(resolve(os.path.expanduser(value)))
    if not os.path.isfile(path):
        raise UserError(f"data.override_chat_template: {value!r} is neither Jinja text nor a file that exists.")
    try:
        with path.open("rb") as file:
            return file.read(MOST_CHARACTERS).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"data.override_chat_template: {path} cannot be read ({error}).") from error


def _joined(spans: list[Span]) -> tuple[Span, ...]:
    """Spans that are not empty, with those that touch as one: a template may mark a turn in several pieces."""
    found: list[Span] = []
    for begin, end in spans:
        if found and found[-1][1] == begin:
            found[-1] = (found[-1][0], end)
        elif begin < end:
            found.append((begin, end))
    return tuple(found)


class ChatTemplate:
    """The tokenizer's chat template; `override` replaces it."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        override: str | None = None,
        processor: Processor | None = None,
        keys: Mapping[str, Any] | None = None,
    ) -> None:
        """`keys` are variables of the template, as `data.chat_template_args` gives them."""
        self._tokenizer = tokenizer
        self._keys = dict(keys or {})
        self._override = override
        own = tokenizer.chat_template or (processor.chat_template if processor else None)
        self._template = override or own
        self.speaks_chat = bool(self._template)
        try:
            check_chat_template(self._template if isinstance(self._template, str) else "")
        except SecurityError as error:
            raise UserError(f"{self._name()} is refused: {error}.") from error
        self._processor = processor
        # Templates that never ask would read a text letter by letter, and write none of it.
        self._takes_text = processor is None or "is string" in str(self._template)

    def write(self, chats: list[list[Message]], uids: list[str]) -> list[str]:
        """The texts that the model continues; uids name the rows in errors."""
        if not self.speaks_chat:
            return [self._plain(messages, uid) for messages, uid in zip(chats, uids)]
        try:
            with self._naming(uids[0]):
                return [check_text(text) for text in self._apply(chats)]
        except UserError:
            if len(chats) == 1:
                raise
        # One chat of the batch was refused; writing them one by one finds which.
        return [self.write([messages], [uid])[0] for messages, uid in zip(chats, uids)]

    def write_turns(self, messages: list[Message], uid: str, tools: list[Any] | None, is_open: bool) -> str:
        """The text of one chat with its tools; where it `is_open`, with the head of the turn the model writes next."""
        with self._naming(uid):
            written = self._tokenizer.apply_chat_template(
                self._written(messages),
                tools=tools,
                chat_template=self._chosen,
                add_generation_prompt=is_open,
                tokenize=False,
                **self._keys,
            )
            return check_text(cast(str, written))

    def marks(self, tools: list[Any] | None) -> bool:
        """Return True if the template marks the assistant's text."""
        return MARK.search(self._tokenizer.get_chat_template(self._chosen, tools)) is not None

    def write_marked(self, messages: list[Message], uid: str, tools: list[Any] | None) -> tuple[str, tuple[Span, ...]]:
        """The text of a whole chat, and what of it the template marks as the assistant's."""
        with self._naming(uid):
            render: Any = render_jinja_template  # which is annotated as if it returned a text
            texts, spans = render(
                conversations=[self._written(messages)],
                tools=tools,
                chat_template=self._tokenizer.get_chat_template(self._chosen, tools),
                return_assistant_tokens_mask=True,
                **self._tokenizer.special_tokens_map | self._keys,
            )
            return check_text(texts[0]), _joined(spans[0])

    @contextmanager
    def _naming(self, uid: str) -> Iterator[None]:
        """Say which row a template fails on; it is somebody's code, and raises what it likes."""
        try:
            with TimeLimit(LONGEST):
                yield
        except TooLongError as error:
            raise UserError(f"{uid}: {self._name()} takes longer than {LONGEST:g} seconds.") from error
        except jinja2.TemplateSyntaxError as error:
            raise UserError(f"{self._name()} is not valid Jinja (line {error.lineno}: {error.message}).") from error
        except Exception as error:
            raise UserError(f"{uid}: {self._name()} refuses this chat ({str(error)[:500]}).") from error

    @property
    def _chosen(self) -> str | None:
        """The template to name to the tokenizer; None for its own."""
        return self._template if self._override or not self._tokenizer.chat_template else None

    def _apply(self, chats: list[list[Message]]) -> list[str]:
        texts = self._tokenizer.apply_chat_template(
            [self._written(messages) for messages in chats],
            chat_template=self._chosen,
            add_generation_prompt=True,
            tokenize=False,
            **self._keys,
        )
        return cast("list[str]", texts)

    def _written(self, messages: list[Message]) -> list[Message]:
        return [message | {"content": self._content(message["content"])} for message in messages]

    def _content(self, text: str | None) -> str | list[dict[str, str]] | None:
        """The content of a turn as the template wants it: text, or parts where images and videos stand in it."""
        if self._processor is None or text is None:
            return text
        if self._takes_text and not PLACE.search(text):
            return text
        kinds = {IMAGE: {"type": "image"}, VIDEO: {"type": "video"}}
        return [kinds.get(piece) or {"type": "text", "text": piece} for piece in PLACE.split(text) if piece]

    def _plain(self, messages: list[Message], uid: str) -> str:
        if len(messages) > 1:
            raise UserError(
                f"{uid}: the prompt is a chat of {len(messages)} turns, but the tokenizer has no chat template. "
                "Give one with data.override_chat_template, or use plain text prompts."
            )
        text = messages[0]["content"]
        if self._processor is None:
            return text
        return text.replace(IMAGE, self._processor.image_place).replace(VIDEO, self._processor.video_place or VIDEO)

    def _name(self) -> str:
        return "data.override_chat_template" if self._override else "the model's chat template"
