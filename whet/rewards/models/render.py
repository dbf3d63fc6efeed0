"""What a reward model reads of a sample: the policy's own tokens, or a text in its own template.

Tokens pass through unchanged where both tokenizers are the same. Else the conversation is written from its messages,
and places in it are found by the characters that its tokens stand for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from transformers import PreTrainedTokenizerBase

from whet.errors import UserError
from whet.rewards.models.folder import KEY, RewardFolder
from whet.types import Prompt, Sample

Message = dict[str, Any]


class UnreadableError(Exception):
    """The sample cannot be given to the model; the message says why."""


@dataclass(slots=True)
class Row:
    """Tokens that the model reads, and where its scores are read."""

    ids: list[int]
    places: list[int]  # one for each step, or one for the whole response
    cut: bool = False  # True if tokens were left out at the beginning


class Reads(Protocol):
    """Makes a row of a sample."""

    def __call__(self, sample: Sample, ends: list[int]) -> Row:
        """`ends` are numbers of response tokens, each up to where a score is wanted."""
        ...


class TokensRow:
    """The tokens of prompt and response, with a mark behind each step if there is one."""

    def __init__(self, longest: int | None, mark: int | None = None, before: int = 0) -> None:
        """`before` moves the place of a score to the left: the value of a critic stands before its token."""
        self._longest, self._mark, self._before = longest, mark, before

    def __call__(self, sample: Sample, ends: list[int]) -> Row:
        """Return the sample's own tokens."""
        response = sample.ids
        ids, places, start = list(sample.prompt.ids), [], 0
        for end in ends:
            ids += response[start:end]
            if self._mark is not None:
                ids.append(self._mark)
            places.append(len(ids) - 1 - self._before)
            start = end
        ids += response[start:]
        return shortened(Row(ids, places), self._longest)


class TextRow:
    """A text of the sample, written by a chat template or a template of the user's, in the model's own tokens."""

    def __init__(
        self,
        folder: RewardFolder,
        write: Callable[[Sample, str], str],
        decode: Callable[[list[int]], str],
        special: bool,
        longest: int | None,
        mark: str | None = None,
    ) -> None:
        """`write` makes the text of a sample with this response; `special` has the tokenizer add its special tokens."""
        self._tokenizer, self._write, self._decode = folder.tokenizer, write, decode
        self._special, self._longest, self._mark = special, longest, mark
        self._steps = folder.scores_steps
        if self._steps and not self._tokenizer.is_fast:
            raise UserError(
                f"{KEY}: steps are found by the characters of tokens, which the tokenizer of {folder.path} does not "
                f"give: use a tokenizer with tokenizer.json, or {KEY}.render=tokens"
            )

    def __call__(self, sample: Sample, ends: list[int]) -> Row:
        """Return the tokens of the sample's text."""
        if not self._steps:
            row = self._encode(self._write(sample, sample.text))
            return Row(row["input_ids"], [len(row["input_ids"]) - 1], row["cut"])
        # 1. The response step by step, each with its mark: where each one ends in the response's text.
        response, stops, start = "", [], 0
        ids = sample.ids
        for end in ends:
            response += self._decode(ids[start:end]) + (self._mark or "")
            stops.append(len(response))
            start = end
        # 2. Where the response stands in the whole text; templates may strip blanks around it.
        text = self._write(sample, response)
        place = text.rfind(response)
        lead = 0
        if place < 0:
            stripped = response.strip()
            place, lead = text.rfind(stripped), len(response) - len(response.lstrip())
            if place < 0 or not stripped:
                raise UnreadableError("the chat template changes the response, so that its steps are not found in it")
            stops = [min(max(stop - lead, 0), len(stripped)) for stop in stops]
        # 3. The token with the last character of each step.
        row = self._encode(text)
        begins = [begin for begin, end in row["offset_mapping"] if end > begin]
        index = [i for i, (begin, end) in enumerate(row["offset_mapping"]) if end > begin]
        places = []
        for stop in stops:
            found = bisect_left(begins, place + stop) - 1
            if found < 0:
                raise UnreadableError(f"its steps are not within {KEY}.max_length")
            places.append(index[found])
        return Row(row["input_ids"], places, row["cut"])

    def _encode(self, text: str) -> dict[str, Any]:
        """Tokens of a text, of which the beginning is left out where it is too long."""
        tokenizer: PreTrainedTokenizerBase = self._tokenizer
        given = tokenizer(
            text, add_special_tokens=self._special, return_offsets_mapping=self._steps, truncation=False, verbose=False
        )
        row: dict[str, Any] = {"input_ids": list(given["input_ids"]), "cut": False}
        offsets = list(given["offset_mapping"]) if self._steps else []
        over = 0 if self._longest is None else len(row["input_ids"]) - self._longest
        if over > 0:
            # Special tokens at the beginning, such as an encoder's [CLS], stay.
            special = set(tokenizer.all_special_ids)
            head = 1 if self._special and row["input_ids"][0] in special else 0
            row = {"input_ids": row["input_ids"][:head] + row["input_ids"][head + over :], "cut": True}
            offsets = offsets[:head] + offsets[head + over :]
        row["offset_mapping"] = offsets
        if not row["input_ids"]:
            raise UnreadableError("its text has no tokens")
        return row


def shortened(row: Row, longest: int | None) -> Row:
    """Leave tokens out at the beginning; places must be in what is left."""
    over = 0 if longest is None else len(row.ids) - longest
    if over <= 0:
        return row
    if min(row.places) < over:
        raise UnreadableError(f"it has {len(row.ids)} tokens, and its steps are not within {KEY}.max_length={longest}")
    return Row(row.ids[over:], [place - over for place in row.places], True)


def same_tokenizer(policy: PreTrainedTokenizerBase, model: PreTrainedTokenizerBase) -> bool:
    """True if tokens of the policy mean the same to the model, and it was trained on no other chat template."""
    same = policy.get_vocab() == model.get_vocab() and policy.all_special_ids == model.all_special_ids
    return same and model.chat_template in (None, policy.chat_template)


Messages = Callable[[Prompt], list[Message]]
