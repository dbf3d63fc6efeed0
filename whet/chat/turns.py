"""Turns of a conversation as token ids, none of which is ever encoded again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Appended:
    """Tokens that follow a turn of the policy."""

    ids: list[int]  # to put behind what the engine holds, ending with the header of the next policy turn
    rewritten: bool = False  # True if `ids` is a whole new prompt, as the template writes earlier turns differently now


class TurnTemplate:
    """The tokenizer's chat template, turn by turn; models without one read contents as plain text."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, tools: list[Any] | None = None, **template_keys: Any
    ) -> None:
        self._tokenizer, self._tools, self._keys = tokenizer, tools, template_keys
        self._chats = bool(template_keys.get("chat_template") or tokenizer.chat_template)

    def prompt(self, messages: list[Message]) -> list[int]:
        """Return the tokens of a conversation, ending with the header of the policy's turn."""
        return self._encode(self._write(messages, open_turn=True), special=not self._chats)

    def append(self, messages: list[Message], written: Sequence[int], added: list[Message]) -> Appended:
        """Return what follows the turn `written`, the last of `messages`, when `added` are said behind it."""
        if not self._chats:
            return Appended(self._encode("".join(str(m["content"]) for m in added), special=False))
        before = self._write(messages, open_turn=False)
        after = self._write([*messages, *added], open_turn=True)
        if not after.startswith(before):
            return Appended(self._encode(after, special=False), rewritten=True)
        # The template ends a turn with its end token and maybe more; what the policy drew of it is there already.
        head = self._write(messages[:-1], open_turn=True)
        tail = before[len(head) :].removeprefix(str(messages[-1]["content"])) if before.startswith(head) else ""
        ending = self._encode(tail, special=False)
        if ending and written and written[-1] == ending[0]:
            ending = ending[1:]
        return Appended(ending + self._encode(after[len(before) :], special=False))

    def _write(self, messages: list[Message], open_turn: bool) -> str:
        if not self._chats:
            return "".join(str(message["content"]) for message in messages)
        return str(
            self._tokenizer.apply_chat_template(
                messages, tools=self._tools, add_generation_prompt=open_turn, tokenize=False, **self._keys
            )
        )

    def _encode(self, text: str, special: bool) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"])
