"""Rows of the data files become demonstrations: samples that nobody sampled, for supervised learning.

A demonstration's prompt is everything before the first token that is learned; its response goes up to the last one,
with a mask of what the assistant wrote. As with prompts, every row is checked and measured before a weight is loaded,
and its tokens are made again when its turn comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from whet.data.chat import PLACE, Message
from whet.data.columns import MISSING, Sources, column_names, lookup, missing_column
from whet.data.conversation import as_conversation, tools_of
from whet.data.dataset import DECODERS, ENCODE_BATCH
from whet.data.files import Resolve, first_rows, read_tables
from whet.data.formats import Columns
from whet.data.rows import BadRow, RowReader, file_of
from whet.data.template import PromptTemplate
from whet.data.turns import Marked, Tokens, encode, marked_chat
from whet.errors import UserError
from whet.types import Media, Prompt, Sample, segments_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from whet.config.schema.data import DataConfig
    from whet.config.schema.jobs import SftConfig
    from whet.model.processor import Processor

LAST = 3  # tokens among which the end of a turn is: marks may take in a line break behind it
LIMIT = "data.max_prompt_length + data.max_response_length"


@dataclass(slots=True)
class _Draft:
    """One text of a row, and its tokens while its images and videos are places still."""

    row: Columns
    uid: str
    marked: Marked
    sources: Sources
    tokens: Tokens

    @property
    def prompt(self) -> str:
        return self.marked.text[: self.marked.spans[0][0]]

    @property
    def begin(self) -> int:
        return self.tokens.mask.index(1)

    @property
    def end(self) -> int:
        return len(self.tokens.mask) - self.tokens.mask[::-1].index(1)


class DemonstrationDataset:
    """The demonstrations of `files`, no longer than `data.max_prompt_length` + `data.max_response_length`."""

    def __init__(
        self,
        files: str | Sequence[str],
        config: DataConfig,
        sft: SftConfig,
        tokenizer: PreTrainedTokenizerBase,
        ends: Set[int],
        key: str = "data.train_files",
        resolve: Resolve = Path,
        processor: Processor | None = None,
        limit_images: int = 0,
    ) -> None:
        """`ends` are the tokens that end a turn; `processor` makes images and videos readable for the model."""
        self._config, self._sft, self._tokenizer, self._key = config, sft, tokenizer, key
        self._ends = ends
        self._reader = RowReader(config, tokenizer, resolve, processor, limit_images)
        self._template = (
            PromptTemplate(file_of(sft.format_response, resolve), "sft.format_response")
            if sft.format_response
            else None
        )
        self._end = _end_of_turn(self._reader, tokenizer, ends)
        self._rows: list[tuple[Columns, str]] = [
            (row, f"{table.name}:{number}")
            for table in first_rows(read_tables(files, key, resolve), config, key)
            for number, row in enumerate(table.rows, start=1)
        ]
        self.rows_read = len(self._rows)
        self.bad_rows: list[str] = []  # why each row with bad media was left out
        self.lengths: list[int] = []  # tokens of the longest demonstration of each row
        self.learned = 0  # tokens of the assistant's
        self.endless = 0  # demonstrations that do not end with a token that ends a response
        self._keep(self._measured())

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, indices: Sequence[int]) -> list[list[Sample]]:
        """The demonstrations of several rows; raises `BadRow` where an image or video turns out to be unusable."""
        drafts = self._drafts([self._rows[i] for i in indices])
        with ThreadPoolExecutor(DECODERS) as pool:
            return list(pool.map(lambda each: [self._sample(draft) for draft in each], drafts))

    def summary(self) -> str:
        """One line for people."""
        line = f"{len(self)} rows of {min(self.lengths)} to {max(self.lengths)} tokens, {self.learned:,} to learn"
        dropped = self.rows_read - len(self)
        if not dropped:
            return line
        long, bad = dropped - len(self.bad_rows), len(self.bad_rows)
        reasons = [f"{long} longer than {self._limit} tokens"] if long else []
        if bad:
            reasons.append(f"{bad} with unusable images or videos, such as {self.bad_rows[0].rstrip('.')}")
        return f"{line} ({dropped} of {self.rows_read} left out: {', '.join(reasons)})"

    @property
    def _limit(self) -> int:
        return self._config.max_prompt_length + self._config.max_response_length

    def _measured(self) -> Iterator[tuple[int, int] | None]:
        """Tokens, and tokens to learn, of each row; None for one with bad media, where such rows are left out."""
        for start in range(0, len(self._rows), ENCODE_BATCH):
            rows = self._rows[start : start + ENCODE_BATCH]
            bad: dict[str, BadRow] = {}
            drafts = iter(self._drafts(rows, bad))
            found = [[] if uid in bad else next(drafts) for _, uid in rows]
            self.endless += sum(self._is_endless(draft) for each in found for draft in each)
            with ThreadPoolExecutor(self._config.filter_overlong_prompts_workers) as pool:
                for (_, uid), measured in zip(rows, pool.map(self._measure, found)):
                    error = bad.get(uid) or (measured if isinstance(measured, BadRow) else None)
                    if error is not None and self._config.on_bad_media == "stop":
                        raise BadRow(f"{error} (data.on_bad_media=skip leaves such rows out)")
                    if error is not None:
                        self.bad_rows.append(str(error))
                    yield None if error is not None or isinstance(measured, BadRow) else measured

    def _measure(self, drafts: list[_Draft]) -> tuple[int, int] | BadRow:
        try:
            lengths = [
                draft.end - draft.begin + self._reader.length(draft.prompt, draft.sources, draft.uid)
                if self._has_media(draft)
                else draft.end
                for draft in drafts
            ]
        except BadRow as error:
            return error
        return max(lengths, default=0), sum(sum(draft.tokens.mask) for draft in drafts)

    def _keep(self, measured: Iterator[tuple[int, int] | None]) -> None:
        """Leave out rows with bad media, and leave out or refuse those that are too long."""
        found = [(row, tokens) for row, tokens in zip(self._rows, measured, strict=True) if tokens is not None]
        if not found:
            raise UserError(f"{self._key}: no row has usable images or videos. The first of them: {self.bad_rows[0]}")
        kept = [(row, tokens) for row, tokens in found if tokens[0] <= self._limit]
        if len(kept) < len(found):
            (_, uid), (longest, _) = max(found, key=lambda each: each[1][0])
            raised = f"Raise one of the two{'' if self._reader.media is None else ' or lower data.max_pixels'}"
            if not kept:
                least = min(tokens for _, (tokens, _) in found)
                raise UserError(
                    f"{self._key}: all {len(found)} rows are longer than {LIMIT} = {self._limit}: they have {least} to "
                    f"{longest} tokens. {raised}."
                )
            if not self._config.filter_overlong_prompts:
                raise UserError(
                    f"{uid} has {longest} tokens, more than {LIMIT} = {self._limit} ({len(found) - len(kept)} of "
                    f"{len(found)} rows are too long). {raised}, or set data.filter_overlong_prompts=true to leave "
                    "them out."
                )
        self._rows = [row for row, _ in kept]
        self.lengths = [tokens for _, (tokens, _) in kept]
        self.learned = sum(learned for _, (_, learned) in kept)

    def _drafts(self, rows: list[tuple[Columns, str]], bad: dict[str, BadRow] | None = None) -> list[list[_Draft]]:
        """The texts of each row with their tokens; without a place for it in `bad`, a bad row is an error."""
        texts: list[tuple[Columns, str, Sources, list[Marked]]] = []
        for row, uid in rows:
            try:
                texts.append((row, uid, *self._texts(row, uid)))
            except BadRow as error:
                if bad is None:
                    raise
                bad[uid] = error
        flat = [marked for *_, marks in texts for marked in marks]
        tokens = iter(encode(self._tokenizer, flat, self._ends, self._reader.special))
        drafts = [
            [_Draft(row, uid, each, sources, next(tokens)) for each in marks] for row, uid, sources, marks in texts
        ]
        for draft in (draft for each in drafts for draft in each):
            if 1 not in draft.tokens.mask or draft.begin == 0:
                raise UserError(f"{draft.uid}: the assistant's turns need at least one token, and one before them.")
        return drafts

    def _texts(self, row: Columns, uid: str) -> tuple[Sources, list[Marked]]:
        """Return a row's texts with the images and videos that belong to them."""
        chat, key = self._reader.chat, self._sft.messages_key
        if key is None or row.get(key) is None:
            if key is not None and lookup(row, self._config.prompt_key) is MISSING:
                raise UserError(
                    f"{uid} has neither a chat (sft.messages_key={key}) nor a prompt "
                    f"(data.prompt_key={self._config.prompt_key}). Its columns: {', '.join(column_names(row))}."
                )
            messages, sources = self._reader.prompt(row, uid)
            prompt = chat.write([messages], [uid])[0]
            if self._end is None:
                raise UserError(
                    "worker.actor.model.tokenizer_path: the tokenizer names no token that ends a text (eos_token)"
                )
            text = prompt + self._response(row, uid) + self._end
            return sources, [Marked(text, ((len(prompt), len(text)),))]
        if not chat.speaks_chat:
            raise UserError(
                f"{uid}: column {key!r} holds a chat, but the tokenizer has no chat template. Give one with "
                "data.override_chat_template, or use prompt and response columns (sft.messages_key=null)."
            )
        inline = Sources()
        messages = as_conversation(row[key], uid, key, inline if self._reader.media else None)
        tools, last_only = tools_of(row, self._sft.tools_key, uid), self._sft.train_on == "last"
        sources = self._reader.sources(row, inline, uid)
        if self._reader.media is not None:
            _check_places(messages, uid, last_only)
        return sources, marked_chat(chat, messages, tools, uid, last_only)

    def _response(self, row: Columns, uid: str) -> str:
        name = self._sft.response_key
        response = lookup(row, name)
        if response is MISSING:
            raise missing_column(row, uid, name, "sft.response_key")
        text = response if isinstance(response, str) else "" if response is None else str(response)
        if self._template is not None:
            text = self._template.render(text, row, uid)
        if not text.strip():
            raise UserError(f"{uid}: the response (column {name!r}) is empty. Fill it in or remove the row.")
        return text

    def _is_endless(self, draft: _Draft) -> bool:
        last = draft.tokens.ids[: draft.end][-LAST:]
        return not any(token in self._ends for token in last)

    def _has_media(self, draft: _Draft) -> bool:
        return self._reader.has_media(draft.prompt, draft.sources)

    def _sample(self, draft: _Draft) -> Sample:
        media: Media | None = None
        ids = draft.tokens.ids[: draft.begin]
        if self._has_media(draft):
            ids, media = self._reader.look(draft.prompt, draft.sources, draft.uid)
        prompt = Prompt(draft.uid, ids, draft.prompt, extra=self._reader.other_columns(draft.row, media), media=media)
        response = draft.tokens.ids[draft.begin : draft.end]
        mask = draft.tokens.mask[draft.begin : draft.end]
        return Sample(prompt, segments_of(response, mask), "stop", text=draft.marked.text[len(draft.prompt) :])


def _check_places(messages: list[Message], uid: str, last_only: bool) -> None:
    """Images and videos are part of a demonstration's prompt: none may stand behind what is learned first."""
    turns = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    first = turns[-1] if last_only else turns[0]
    behind = next(
        (i for i, message in enumerate(messages) if i >= first and PLACE.search(message["content"] or "")), None
    )
    if behind is not None:
        raise UserError(
            f"{uid}: turn {behind + 1} has an image or a video, and an earlier turn of the assistant's is learned. "
            "Learn from the last turn alone (sft.train_on=last), or move the images to the first turn."
        )


def _end_of_turn(reader: RowReader, tokenizer: PreTrainedTokenizerBase, ends: Set[int]) -> str | None:
    """Return the end token: the one that the chat template puts after the assistant's turn, else the tokenizer's."""
    if reader.chat.speaks_chat:
        said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        text = reader.chat.write_turns(said, "data.override_chat_template", None, is_open=False)
        behind = text.rpartition("b")[2]
        ids = tokenizer(behind, add_special_tokens=False)["input_ids"] if behind else []
        end = next((token for token in ids if token in ends), None)
        if end is not None:
            return str(tokenizer.convert_ids_to_tokens(end))
    return None if tokenizer.eos_token is None else str(tokenizer.eos_token)
