"""Rows of the data files become prompts.

Building a `PromptDataset` reads the files, checks every row and counts the tokens of every prompt, so that whatever is
wrong with the data is said before a weight is loaded. It keeps the rows and the lengths only: the token ids of a
prompt are made again when it is asked for, which costs a fraction of a millisecond and keeps large datasets small.
Images are decoded then too, once for a prompt; before that only their headers are read, unless `data.check_media` wants
more. Rows whose images or videos are unusable are refused or left out, as `data.on_bad_media` says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.data.chat import Message
from whet.data.columns import MISSING, Sources, lookup, missing_column
from whet.data.files import Resolve, Table, as_tables, first_rows
from whet.data.formats import Columns
from whet.data.rows import BadRow, RowReader
from whet.errors import UserError
from whet.types import Media, Prompt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from whet.config.schema.data import DataConfig
    from whet.model.processor import Processor

ENCODE_BATCH = 1000  # rows whose texts and ids are in memory at once while lengths are counted
DECODERS = 8  # threads that decode images of a batch; Pillow lets others run meanwhile


@dataclass(slots=True)
class _Draft:
    """A row on its way to a prompt."""

    row: Columns
    uid: str
    text: str
    sources: Sources
    messages: list[Message]


class PromptDataset:
    """The prompts of `files`, checked, templated and no longer than `data.max_prompt_length`."""

    def __init__(
        self,
        files: str | Sequence[str] | Sequence[Table],
        config: DataConfig,
        tokenizer: PreTrainedTokenizerBase,
        key: str = "data.train_files",
        resolve: Resolve = Path,
        processor: Processor | None = None,
        limit_images: int = 0,
    ) -> None:
        """`processor` makes images and videos readable for the model; without it rows that have some are refused."""
        self._config = config
        self._tokenizer = tokenizer
        self._key = key
        self._reader = RowReader(config, tokenizer, resolve, processor, limit_images)
        self.media = None if processor is None else partial(_read_again, processor)  # of images in the model's size
        self._rows: list[Columns] = []
        self._uids: list[str] = []
        for table in first_rows(as_tables(files, key, resolve), config, key):
            self._rows += table.rows
            self._uids += [f"{table.name}:{number}" for number in range(1, len(table.rows) + 1)]
        self.rows_read = len(self._rows)
        self.bad_rows: list[str] = []  # why each row with bad media was left out
        self.lengths = self._count_tokens()
        self._keep_short_enough()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def uids(self) -> Sequence[str]:
        """The names of the prompts, in their order."""
        return self._uids

    def __getitem__(self, index: int) -> Prompt:
        (prompt,) = self.take([index])
        return prompt

    def __iter__(self) -> Iterator[Prompt]:
        for start in range(0, len(self), ENCODE_BATCH):
            yield from self.take(range(start, min(start + ENCODE_BATCH, len(self))))

    def take(self, indices: Sequence[int]) -> list[Prompt]:
        """Several prompts at once, which the tokenizer does quicker than one by one.

        Raises `BadRow` where an image or video turns out to be unusable.
        """
        if not indices:
            return []
        drafts = self._drafts([self._rows[i] for i in indices], [self._uids[i] for i in indices])
        plain = iter(self.encode([draft.text for draft in drafts if not self._has_media(draft)]))
        with ThreadPoolExecutor(DECODERS) as pool:
            seen = pool.map(self._look, [draft for draft in drafts if self._has_media(draft)])
            read = [next(seen) if self._has_media(draft) else (next(plain), None) for draft in drafts]
        return [
            Prompt(
                uid=draft.uid,
                ids=ids,
                text=draft.text,
                answer=self._answer(draft.row, draft.uid),
                extra=self._reader.other_columns(draft.row, media),
                media=media,
                messages=draft.messages,
            )
            for draft, (ids, media) in zip(drafts, read)
        ]

    def first_of_each(self, column: str) -> list[int]:
        """Return the first prompt of each text in a column, and the first that has none."""
        found: dict[str | None, int] = {}
        for i, row in enumerate(self._rows):
            value = lookup(row, column)
            found.setdefault(value if isinstance(value, str) else None, i)
        return sorted(found.values())

    def summary(self) -> str:
        """One line for people: how many prompts there are, how long they are, how many were left out."""
        line = f"{len(self)} prompts of {min(self.lengths)} to {max(self.lengths)} tokens"
        dropped = self.rows_read - len(self)
        if not dropped:
            return line + self._remarks()
        long, bad = dropped - len(self.bad_rows), len(self.bad_rows)
        reasons = [f"longer than {self._config.max_prompt_length} tokens"] if long else []
        if bad:
            reasons = [f"{long} {reason}" for reason in reasons]
            reasons.append(f"{bad} with unusable images or videos, such as {self.bad_rows[0].rstrip('.')}")
        return f"{line} ({dropped} of {self.rows_read} left out: {', '.join(reasons)}){self._remarks()}"

    def _count_tokens(self) -> list[int]:
        lengths: list[int | None] = []
        for start in range(0, len(self._rows), ENCODE_BATCH):
            rows = self._rows[start : start + ENCODE_BATCH]
            uids = self._uids[start : start + ENCODE_BATCH]
            for row, uid in zip(rows, uids):
                self._answer(row, uid)
            lengths += self._lengths(rows, uids)
        if 0 in lengths:
            raise UserError(f"{self._uids[lengths.index(0)]}: the prompt has no tokens once its templates are applied.")
        if not any(lengths):
            raise UserError(f"{self._key}: no row has usable images or videos. The first of them: {self.bad_rows[0]}")
        usable = [(row, uid, n) for row, uid, n in zip(self._rows, self._uids, lengths) if n is not None]
        self._rows, self._uids = [row for row, _, _ in usable], [uid for _, uid, _ in usable]
        return [length for _, _, length in usable]

    def _lengths(self, rows: list[Columns], uids: list[str]) -> list[int | None]:
        """Tokens of every prompt; None for one whose images or videos are bad, where such rows are left out."""
        if self._reader.media is None:
            return [len(ids) for ids in self.encode([draft.text for draft in self._drafts(rows, uids)])]
        drafts, bad = self._usable_drafts(rows, uids)
        plain = [draft for draft in drafts if not self._has_media(draft)]
        lengths = {d.uid: len(ids) for d, ids in zip(plain, self.encode([draft.text for draft in plain]))}
        seen = [draft for draft in drafts if self._has_media(draft)]
        with ThreadPoolExecutor(self._config.filter_overlong_prompts_workers) as pool:
            for draft, found in zip(seen, pool.map(self._measure, seen)):
                if isinstance(found, BadRow):
                    bad.append(str(found))
                else:
                    lengths[draft.uid] = found
        if bad and self._config.on_bad_media == "stop":
            raise BadRow(f"{bad[0]} (data.on_bad_media=skip leaves such rows out)")
        self.bad_rows += bad
        return [lengths.get(uid) for uid in uids]

    def _usable_drafts(self, rows: list[Columns], uids: list[str]) -> tuple[list[_Draft], list[str]]:
        """The drafts of rows, and what is wrong with the others."""
        try:
            return self._drafts(rows, uids), []
        except BadRow as error:
            if len(rows) == 1:
                return [], [str(error)]
        # Some row of the batch is bad; halves of it find which.
        half = len(rows) // 2
        first, second = self._usable_drafts(rows[:half], uids[:half]), self._usable_drafts(rows[half:], uids[half:])
        return first[0] + second[0], first[1] + second[1]

    def _measure(self, draft: _Draft) -> int | BadRow:
        try:
            return self._reader.length(draft.text, draft.sources, draft.uid)
        except BadRow as error:
            return error

    def _look(self, draft: _Draft) -> tuple[list[int], Media | None]:
        """Token ids and media of a prompt with images or videos."""
        ids, media = self._reader.look(draft.text, draft.sources, draft.uid)
        limit = self._config.max_prompt_length
        if len(ids) > limit:
            raise BadRow(
                f"{draft.uid}: its images or videos have changed since the run began: the prompt has {len(ids)} tokens "
                f"now, more than data.max_prompt_length={limit}."
            )
        return ids, media

    def _has_media(self, draft: _Draft) -> bool:
        return self._reader.has_media(draft.text, draft.sources)

    def _drafts(self, rows: list[Columns], uids: list[str]) -> list[_Draft]:
        found = [self._reader.prompt(row, uid) for row, uid in zip(rows, uids)]
        texts = self._reader.chat.write([messages for messages, _ in found], uids)
        return [_Draft(row, uid, text, media, said) for row, uid, text, (said, media) in zip(rows, uids, texts, found)]

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Return the token ids of prompts without images, as those of rows are made."""
        if not texts:
            return []
        return self._tokenizer(
            texts, add_special_tokens=self._reader.special, return_attention_mask=False, truncation=False, verbose=False
        )["input_ids"]

    def _answer(self, row: Columns, uid: str) -> Any:
        answer = lookup(row, self._config.answer_key)
        if answer is MISSING:
            key, prompt = self._config.answer_key, self._config.prompt_key
            others = lookup(self._rows[0], key) is not MISSING
            raise missing_column(row, uid, key, "data.answer_key", others, but=prompt)
        return answer

    def _remarks(self) -> str:
        """Say what is odd about rows that can be read: empty answers among others, a template without columns."""
        remark = ""
        answers = [lookup(row, self._config.answer_key) for row in self._rows]
        empty = [uid for uid, answer in zip(self._uids, answers) if answer in (None, "") or answer != answer]
        if 0 < len(empty) < len(self):
            remark += (
                f"; {len(empty)} without an answer (data.answer_key={self._config.answer_key}), such as {empty[0]}"
            )
        if self._reader.ignores_rows and self._reader.media is None and len(self) > 1:
            remark += f"; all read the same: data.format_prompt={self._config.format_prompt} names no column"
        return remark

    @property
    def _or_shrink(self) -> str:
        return "" if self._reader.media is None else " or lower data.max_pixels and data.min_pixels"

    def _keep_short_enough(self) -> None:
        """Leave out, or refuse, prompts longer than `data.max_prompt_length`."""
        limit = self._config.max_prompt_length
        kept = [index for index, length in enumerate(self.lengths) if length <= limit]
        if len(kept) == len(self.lengths):
            return
        if not kept:
            raise UserError(
                f"{self._key}: all {len(self.lengths)} prompts are longer than data.max_prompt_length={limit}: "
                f"they have {min(self.lengths)} to {max(self.lengths)} tokens. Raise data.max_prompt_length"
                f"{self._or_shrink}."
            )
        if not self._config.filter_overlong_prompts:
            longest = max(range(len(self.lengths)), key=self.lengths.__getitem__)
            raise UserError(
                f"{self._uids[longest]} has {self.lengths[longest]} tokens, more than data.max_prompt_length={limit} "
                f"({len(self.lengths) - len(kept)} of {len(self.lengths)} prompts are too long). "
                f"Raise data.max_prompt_length{self._or_shrink}, "
                "or set data.filter_overlong_prompts=true to leave them out."
            )
        self._rows = [self._rows[index] for index in kept]
        self._uids = [self._uids[index] for index in kept]
        self.lengths = [self.lengths[index] for index in kept]


def _read_again(processor: Processor, images: list[Any]) -> Media:
    """Return images that are in the size that the model sees, with their pixels."""
    return Media(images, [], processor.pixels(images, []))
