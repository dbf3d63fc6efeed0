"""Encode template text behind tokens that stand, with foreign text kept from spelling special tokens.

A user's or a tool's text may contain `<|im_end|>`: encoded as the token it would close a turn or fake a call. Such
spellings are taken out before rendering (`shield`) and encoded as ordinary characters afterwards.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Any

from whet.chat.messages import Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_NAME = f"Zq{secrets.token_hex(8)}"  # letters and digits, which templates do not escape; nobody can guess it
_TRUSTED = ("system", "developer", "assistant")  # roles whose text is the user's own, or the policy's


class TurnEncoder:
    """Encodes text that a template wrote."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        added = {token: str(each) for token, each in tokenizer.added_tokens_decoder.items()}
        special = {token: str(text) for token, text in zip(tokenizer.all_special_ids, tokenizer.all_special_tokens)}
        self.texts = added | special  # text of every token that is found before any other
        # Of added tokens that are not special, such as <tool_call> in some vocabularies, spellings cannot be split.
        marked = {str(each) for each in tokenizer.added_tokens_decoder.values() if each.special}
        longest_first = sorted({*marked, *special.values()} - {""}, key=len, reverse=True)
        self._spelt = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None
        # Some tokenizers begin every text with a space of their own, but none behind a special token.
        self._anchor = next((each for each in special.items() if self._encode(each[1]) == [each[0]]), None)
        self._splits = self._can_split()

    def shield(self, messages: list[Message]) -> tuple[list[Message], dict[str, str]]:
        """Return messages with spellings of special tokens in foreign text replaced, and what each stands for."""
        stands: dict[str, str] = {}
        if self._spelt is None or not self._splits:
            return messages, stands
        return [self._shielded(message, stands) for message in messages], stands

    def encode(self, text: str, stands: dict[str, str], begins: bool = False) -> list[int]:
        """Return the tokens of a text behind others, or with `begins` of a whole prompt."""
        if not stands:
            return self._encode(text) if begins else self._behind(text)
        ids: list[int] = []
        for piece in re.split("(" + "|".join(map(re.escape, stands)) + ")", text):
            if piece in stands:
                ids += self._encode(stands[piece], split=True)
            elif piece:
                ids += self._encode(piece) if begins and not ids else self._behind(piece)
        return ids

    def spell(self, ids: list[int]) -> str:
        """Return the text of tokens, special ones included."""
        text = self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text if isinstance(text, str) else "".join(text)

    def _behind(self, text: str) -> list[int]:
        if self._anchor is None or not text:
            return self._encode(text) if text else []
        ids = self._encode(self._anchor[1] + text)
        return ids[1:] if ids[0] == self._anchor[0] else self._encode(text)

    def _encode(self, text: str, split: bool = False) -> list[int]:
        options: dict[str, Any] = {"split_special_tokens": True} if split else {}
        return self._tokenizer(text, add_special_tokens=False, truncation=False, verbose=False, **options)["input_ids"]

    def _can_split(self) -> bool:
        """Return True if the tokenizer can spell a special token with ordinary ones."""
        if self._anchor is None:
            return False
        return self._anchor[0] not in self._encode(self._anchor[1], split=True)

    def _shielded(self, message: Message, stands: dict[str, str]) -> Message:
        content = message.get("content")
        if message.get("role") in _TRUSTED or not content:
            return message
        if isinstance(content, str):
            return message | {"content": self._replaced(content, stands)}
        if not isinstance(content, list):
            return message
        parts = [
            part | {"text": self._replaced(part["text"], stands)} if isinstance(part.get("text"), str) else part
            for part in content
        ]
        return message | {"content": parts}

    def _replaced(self, text: str, stands: dict[str, str]) -> str:
        assert self._spelt is not None

        def stand_in(found: re.Match[str]) -> str:
            name = f"{_NAME}n{len(stands)}Qz"
            stands[name] = found.group()
            return name

        return self._spelt.sub(stand_in, text)
