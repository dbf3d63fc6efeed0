"""One row of the data: its prompt as a chat, the images and videos that belong to it, and how the model reads them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.data.chat import ChatTemplate, Message, as_messages, last_user_turn, template_text
from whet.data.columns import MISSING, MediaError, Sources, column_items, lookup, missing_column
from whet.data.files import Resolve
from whet.data.formats import Columns
from whet.data.template import PromptTemplate
from whet.errors import UserError
from whet.types import Media

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from whet.config.schema.data import DataConfig
    from whet.data.media import MediaReader
    from whet.model.processor import Processor


class BadRow(UserError):  # noqa: N818
    """A row whose images or videos cannot be used."""


class RowReader:
    """Reads rows as the config says, for one model."""

    def __init__(
        self,
        config: DataConfig,
        tokenizer: PreTrainedTokenizerBase,
        resolve: Resolve = Path,
        processor: Processor | None = None,
        limit_images: int = 0,
    ) -> None:
        """`processor` makes images and videos readable for the model; without it rows that have some are refused."""
        self._config, self._processor = config, processor
        folder = file_of(config.image_dir, resolve) if config.image_dir else None
        self.media: MediaReader | None = None
        if processor is not None:
            from whet.data.media import MediaReader  # models of text need nothing of it

            self.media = MediaReader(processor, config, folder, limit_images)
        self._had_prompt = False  # some row before this one
        self._template = PromptTemplate(file_of(config.format_prompt, resolve)) if config.format_prompt else None
        override = template_text(config.override_chat_template, resolve)
        self.chat = ChatTemplate(tokenizer, override, processor, config.chat_template_args)

    @property
    def ignores_rows(self) -> bool:
        """True if the prompt template writes the same text for every row."""
        return self._template is not None and not self._template.names

    @property
    def special(self) -> bool:
        """True if the tokenizer adds its special tokens: a chat template writes them itself, a plain text has none."""
        return not self.chat.speaks_chat

    def prompt(self, row: Columns, uid: str) -> tuple[list[Message], Sources]:
        """The turns of the prompt column, the last of the user's as the prompt template puts it, and their media."""
        name = self._config.prompt_key
        prompt = lookup(row, name)
        if prompt is MISSING:
            raise missing_column(row, uid, name, "data.prompt_key", others=self._had_prompt)
        self._had_prompt = True
        inline = Sources()
        messages = as_messages(prompt, uid, name, inline if self.media else None)
        if self._template:
            turn = last_user_turn(messages, uid)
            turn["content"] = self._template.render(turn["content"], self._template_columns(row), uid)
            if not turn["content"]:
                raise UserError(f"{uid}: data.format_prompt={self._config.format_prompt} writes nothing for this row.")
        return messages, self.sources(row, inline, uid)

    def sources(self, row: Columns, inline: Sources, uid: str) -> Sources:
        """The images and videos of a row: those of its columns, or those that stood `inline` in its chat."""
        if self.media is not None:
            try:
                return self.media.sources(row, inline, uid)
            except MediaError as error:
                raise BadRow(str(error)) from error
        for name in (self._config.image_key, self._config.video_key):
            if column_items(row, name):
                raise UserError(
                    f"{uid}: column {name!r} is filled, and the model reads text only, or came without a processor "
                    "(preprocessor_config.json). Use a vision-language model, or remove the column."
                )
        return inline

    def has_media(self, text: str, sources: Sources) -> bool:
        """True if the processor must read it: it has media, or placeholders without any, which is an error."""
        if self._processor is None:
            return False
        return bool(sources) or any(token in text for token in self._processor.tokens)

    def length(self, text: str, sources: Sources, uid: str) -> int:
        """Tokens of a text with media; raises `BadRow` where one is unusable."""
        assert self.media is not None
        try:
            whole = self._config.check_media == "full"
            return self.media.length(text, sources, uid, self.special, decode_all=whole)
        except MediaError as error:
            raise BadRow(str(error)) from error

    def look(self, text: str, sources: Sources, uid: str) -> tuple[list[int], Media]:
        """Token ids and media of a text; raises `BadRow` where one is unusable."""
        assert self.media is not None
        try:
            return self.media.read(text, sources, uid, self.special)
        except MediaError as error:
            raise BadRow(str(error)) from error

    def other_columns(self, row: Columns, media: Media | None) -> dict[str, Any]:
        """Every column, but for those whose pictures are in `media` already: they would travel with every sample."""
        left_out = () if media is None else (self._config.image_key, self._config.video_key)
        return {name: value for name, value in row.items() if name not in left_out}

    def _template_columns(self, row: Columns) -> Columns:
        """Return a template's variables; for vision models `images` and `videos` are lists in every row."""
        if self.media is None:
            return row
        names = {"images": self._config.image_key, "videos": self._config.video_key}
        lists = {name: column_items(row, key) for name, key in names.items()}
        return lists | row | {key: lists[name] for name, key in names.items()}


def file_of(name: str, resolve: Resolve) -> Path:
    """The file or folder that a config value names."""
    return Path(resolve(os.path.expanduser(name)))
