"""The conversation of an episode as token ids: the prompt that `reset` makes, and what each observation adds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from whet.chat.turns import TurnTemplate
from whet.envs.observations import Answer, Observed
from whet.envs.protocol import Message
from whet.envs.session import BAD_RESULT, EnvFailure, Opened
from whet.types import Media, Prompt, Segment

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


MOST_CHARACTERS = 128  # that one token stands for: runs of spaces, in the largest vocabularies
MOST_TEMPLATES = 1024  # lists of tools whose templates are kept; a harness may send another with every call


def cannot_fit(messages: list[Message], tokens: int) -> bool:
    """Return True if texts have more characters than so many tokens can stand for.

    Encoding 10 MB to learn that an episode has room for a thousand tokens takes a minute and a gigabyte.
    """
    contents = (message.get("content") for message in messages)
    return sum(len(each.strip()) for each in contents if isinstance(each, str)) > tokens * MOST_CHARACTERS


class ImageReader(Protocol):
    """How a vision model reads messages with images."""

    def written(self, messages: list[Message]) -> list[Message]:
        """Return messages as the chat template wants them: `<image>` in a text becomes a part of its own."""
        ...

    def fitted(self, image: Any) -> Any:
        """Return an image, or the content of its file, in the size that the model sees; ValueError for none."""
        ...

    def expanded(self, ids: list[int], images: list[Any]) -> list[int]:
        """Return ids with the one place of each fitted image expanded to its tokens; ValueError for other numbers."""
        ...

    def media(self, images: list[Any]) -> Media | None:
        """Return fitted images with the pixels that the model reads; None without any."""
        ...


class Conversations:
    """Begins conversations with one model."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        ends: frozenset[int],
        longest_prompt: int,
        images: ImageReader | None = None,
        **template_keys: Any,
    ) -> None:
        """`ends` are the tokens that end a turn; `images` is None for a text model."""
        self.tokenizer, self.ends, self.images = tokenizer, ends, images
        self.longest, self._keys = longest_prompt, template_keys
        self._templates: dict[str, TurnTemplate] = {}  # by the tools in them
        self.filler = min(ends) if ends else 0  # a token that stands where nothing was written

    def begin(self, prompt: Prompt, opened: Opened) -> Conversation:
        """Return the conversation after `reset`; `EnvFailure` where its prompt cannot be used."""
        template = self.template(opened.tools)
        observed = opened.observed
        if observed is None and opened.tools is None:
            return Conversation(self, template, prompt, list(prompt.messages))
        messages, images = _begun(prompt, observed)
        if cannot_fit(messages, self.longest):
            raise EnvFailure(BAD_RESULT, "reset", f"made a prompt of more than data.max_prompt_length={self.longest}")
        images += self.fitted("reset", [] if observed is None else observed.images)
        written = self.written(messages)
        ids = self.expanded("reset", _named("reset", lambda: template.prompt(written)), images)
        media = self.media(images)
        if len(ids) > self.longest:
            raise EnvFailure(
                BAD_RESULT,
                "reset",
                f"made a prompt of {len(ids)} tokens, more than data.max_prompt_length={self.longest}",
            )
        begun = replace(prompt, ids=ids, text=self.spell(ids), media=media, messages=messages)
        return Conversation(self, template, begun, messages)

    def written(self, messages: list[Message]) -> list[Message]:
        """Return messages as the template reads them."""
        return messages if self.images is None else self.images.written(messages)

    def fitted(self, place: str, images: list[Any]) -> list[Any]:
        """Return images in the size that the model sees."""
        reader = self.images
        if reader is None and images:
            raise EnvFailure(BAD_RESULT, place, "returned an image, and the model reads text only")
        return [] if reader is None else _named(place, lambda: [reader.fitted(image) for image in images])

    def expanded(self, place: str, ids: list[int], images: list[Any]) -> list[int]:
        """Expand the places of fitted images."""
        reader = self.images
        return ids if reader is None else _named(place, lambda: reader.expanded(ids, images))

    def media(self, images: list[Any]) -> Media | None:
        """Return fitted images with their pixels."""
        return None if self.images is None else self.images.media(images)

    def text(self, turn: list[int]) -> str:
        """Return the text of a turn of the policy, special tokens included, without the token that ended it."""
        return self.spell(turn[:-1] if turn and turn[-1] in self.ends else turn)

    def spell(self, ids: list[int]) -> str:
        """Return the text of tokens, special ones included."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=False))

    def template(self, tools: list[dict[str, Any]] | None) -> TurnTemplate:
        """Return the chat template with these tools in it."""
        known = json.dumps(tools, sort_keys=True, default=str)
        if known not in self._templates:
            if len(self._templates) >= MOST_TEMPLATES:
                del self._templates[next(iter(self._templates))]
            self._templates[known] = TurnTemplate(self.tokenizer, tools, ends=self.ends, **self._keys)
        return self._templates[known]


class Conversation:
    """One conversation; its tokens are kept by whoever plays the episode."""

    def __init__(self, shared: Conversations, template: TurnTemplate, prompt: Prompt, messages: list[Message]) -> None:
        self._shared, self._template, self.prompt = shared, template, prompt
        self._messages = messages
        self._images = [] if prompt.media is None else list(prompt.media.images)  # of the conversation so far
        self._turns = 0

    def text(self, turn: list[int]) -> str:
        """Return the text of a turn of the policy, special tokens included, without the token that ended it."""
        return self._shared.text(turn)

    def append(self, turn: list[int], answer: Answer) -> Segment:
        """Add the policy's turn and the environment's answer; return the segment of the latter's tokens."""
        assert answer.observed is not None, "checked when the answer was read"
        self._turns += 1
        place = f"step of turn {self._turns}"
        said = answer.message or {"role": "assistant", "content": self.text(turn)}
        self._messages = [*self._messages, said]
        shared, added = self._shared, answer.observed.messages
        whole, news = shared.written(self._messages), shared.written(added)
        appended = _named(place, lambda: self._template.append(whole, turn, news))
        self._messages = [*self._messages, *added]
        if appended.rewritten and self.prompt.media is not None and self.prompt.media.videos:
            raise EnvFailure(BAD_RESULT, place, "led to a chat whose earlier turns the template rewrites, with a video")
        images = shared.fitted(place, answer.observed.images)
        self._images = [*self._images, *images]
        images = self._images if appended.rewritten else images  # a conversation that is written anew shows all again
        ids = shared.expanded(place, appended.ids, images)
        return Segment(ids, by_model=False, media=shared.media(images), restart=appended.rewritten)


def _begun(prompt: Prompt, observed: Observed | None) -> tuple[list[Message], list[Any]]:
    """Return the messages of a prompt with its first observation, and the images of the row in them."""
    if observed is not None and observed.is_chat:
        return observed.messages, []
    messages, images = [dict(each) for each in prompt.messages], []
    if prompt.media is not None:
        if prompt.media.videos:
            raise EnvFailure(BAD_RESULT, "reset", "returned an observation to a prompt with a video, which is not read")
        images = list(prompt.media.images)
    if observed is None:
        return messages, images
    (said,) = observed.messages
    if messages and messages[-1]["role"] == said["role"]:
        joined = "\n".join(text for text in (messages[-1]["content"], said["content"]) if text)
        messages[-1] = {**messages[-1], "content": joined}
    else:
        messages.append(said)
    return messages, images


def _named(place: str, work: Callable[[], Any]) -> Any:
    """Do something with messages of an environment, which a chat template or a processor may refuse."""
    try:
        return work()
    except Exception as error:  # templates are code of others, and raise what they like
        text = str(error).strip().splitlines()[0][:300] if str(error).strip() else ""
        raise EnvFailure(
            BAD_RESULT, place, f"returned what the model cannot read: {type(error).__name__}: {text}"
        ) from error
