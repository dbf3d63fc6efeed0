"""Rows of the data files become prompts.

Building a `PromptDataset` reads the files, checks every row and counts the tokens of every prompt, so that whatever is
wrong with the data is said before a weight is loaded. It keeps the rows and the lengths only: the token ids of a
prompt are made again when it is asked for, which costs a fraction of a millisecond and keeps large datasets small.

Left out of this version: images and videos. They will be decoded in `__getitem__` too, into `Prompt.media`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.config.files import is_template_text
from whet.data.chat import ChatTemplate, Message, as_messages, last_user_turn
from whet.data.columns import MISSING, lookup, missing_column
from whet.data.files import Resolve, read_tables
from whet.data.formats import Columns
from whet.data.template import PromptTemplate
from whet.errors import UserError
from whet.types import Prompt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from whet.config.data import DataConfig

ENCODE_BATCH = 1000  # rows whose texts and ids are in memory at once while lengths are counted


class PromptDataset:
    """The prompts of `files`, checked, templated and no longer than `data.max_prompt_length`."""

    def __init__(
        self,
        files: str | Sequence[str],
        config: DataConfig,
        tokenizer: PreTrainedTokenizerBase,
        key: str = "data.train_files",
        resolve: Resolve = Path,
    ) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._key = key
        self._template = PromptTemplate(_file(config.format_prompt, resolve)) if config.format_prompt else None
        self._chat = ChatTemplate(tokenizer, _chat_template(config.override_chat_template, resolve))
        self._rows: list[Columns] = []
        self._uids: list[str] = []
        for table in read_tables(files, key, resolve):
            self._rows += table.rows
            self._uids += [f"{table.name}:{number}" for number in range(1, len(table.rows) + 1)]
        self.rows_read = len(self._rows)
        self.lengths = self._count_tokens()
        self._keep_short_enough()

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Prompt:
        (prompt,) = self.take([index])
        return prompt

    def __iter__(self) -> Iterator[Prompt]:
        for start in range(0, len(self), ENCODE_BATCH):
            yield from self.take(range(start, min(start + ENCODE_BATCH, len(self))))

    def take(self, indices: Sequence[int]) -> list[Prompt]:
        """Several prompts at once, which the tokenizer does quicker than one by one."""
        rows, uids = [self._rows[i] for i in indices], [self._uids[i] for i in indices]
        texts = self._texts(rows, uids)
        return [
            Prompt(uid=uid, ids=ids, text=text, answer=self._answer(row, uid), extra=dict(row))
            for row, uid, text, ids in zip(rows, uids, texts, self._encode(texts))
        ]

    def summary(self) -> str:
        """One line for people: how many prompts there are, how long they are, how many were left out."""
        line = f"{len(self)} prompts of {min(self.lengths)} to {max(self.lengths)} tokens"
        dropped = self.rows_read - len(self)
        if dropped:
            line += f" ({dropped} of {self.rows_read} left out: longer than {self._config.max_prompt_length} tokens)"
        return line

    def _count_tokens(self) -> list[int]:
        lengths: list[int] = []
        for start in range(0, len(self._rows), ENCODE_BATCH):
            rows = self._rows[start : start + ENCODE_BATCH]
            uids = self._uids[start : start + ENCODE_BATCH]
            for row, uid in zip(rows, uids):
                self._answer(row, uid)
                self._refuse_media(row, uid)
            lengths += [len(ids) for ids in self._encode(self._texts(rows, uids))]
        if 0 in lengths:
            raise UserError(f"{self._uids[lengths.index(0)]}: the prompt has no tokens once its templates are applied.")
        return lengths

    def _texts(self, rows: list[Columns], uids: list[str]) -> list[str]:
        return self._chat.write([self._messages(row, uid) for row, uid in zip(rows, uids)], uids)

    def _messages(self, row: Columns, uid: str) -> list[Message]:
        name = self._config.prompt_key
        prompt = lookup(row, name)
        if prompt is MISSING:
            raise missing_column(row, uid, name, "data.prompt_key")
        messages = as_messages(prompt, uid, name)
        if self._template:
            turn = last_user_turn(messages, uid)
            turn["content"] = self._template.render(turn["content"], row, uid)
        return messages

    def _encode(self, texts: list[str]) -> list[list[int]]:
        # A chat template writes the special tokens itself; a plain text gets those the tokenizer adds by default.
        special = not self._chat.speaks_chat
        return self._tokenizer(
            texts, add_special_tokens=special, return_attention_mask=False, truncation=False, verbose=False
        )["input_ids"]

    def _answer(self, row: Columns, uid: str) -> Any:
        answer = lookup(row, self._config.answer_key)
        if answer is MISSING:
            raise missing_column(row, uid, self._config.answer_key, "data.answer_key")
        return answer

    def _refuse_media(self, row: Columns, uid: str) -> None:
        for name in (self._config.image_key, self._config.video_key):
            if row.get(name):
                raise UserError(
                    f"{uid}: column {name!r} is filled, but image and video prompts are not in this version yet."
                )

    def _keep_short_enough(self) -> None:
        """Leave out, or refuse, prompts longer than `data.max_prompt_length`."""
        limit = self._config.max_prompt_length
        kept = [index for index, length in enumerate(self.lengths) if length <= limit]
        if len(kept) == len(self.lengths):
            return
        if not kept:
            raise UserError(
                f"{self._key}: all {len(self.lengths)} prompts are longer than data.max_prompt_length={limit}: "
                f"they have {min(self.lengths)} to {max(self.lengths)} tokens. Raise data.max_prompt_length."
            )
        if not self._config.filter_overlong_prompts:
            longest = max(range(len(self.lengths)), key=self.lengths.__getitem__)
            raise UserError(
                f"{self._uids[longest]} has {self.lengths[longest]} tokens, more than data.max_prompt_length={limit} "
                f"({len(self.lengths) - len(kept)} of {len(self.lengths)} prompts are too long). "
                "Raise data.max_prompt_length, or set data.filter_overlong_prompts=true to leave them out."
            )
        self._rows = [self._rows[index] for index in kept]
        self._uids = [self._uids[index] for index in kept]
        self.lengths = [self.lengths[index] for index in kept]


def _file(name: str, resolve: Resolve) -> Path:
    return Path(resolve(str(Path(name).expanduser())))


def _chat_template(value: str | None, resolve: Resolve) -> str | None:
    """The text of `data.override_chat_template`, which is given inline or as a file."""
    if not value:
        return None
    if is_template_text(value):
        return value
    path = _file(value, resolve)
    if not path.is_file():
        raise UserError(f"data.override_chat_template: {value!r} is neither Jinja text nor a file that exists.")
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"data.override_chat_template: {path} cannot be read ({error}).") from error
