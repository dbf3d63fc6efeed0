"""Turn a request into prompts and sampling parameters: chat template, tokens, images.

This runs in threads of its own: a long text takes a while to become tokens, and the event loop has others to serve.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, replace
from typing import Any

from transformers import PreTrainedTokenizerBase

from whet.chat.calls.format import Format
from whet.config import Config
from whet.data.chat import IMAGE, PLACE, ChatTemplate
from whet.data.columns import MediaError, Sources
from whet.data.media import MediaReader
from whet.model.grid_processor import GridProcessor
from whet.model.processor import Processor
from whet.rollout.engine import SamplingParams
from whet.serving.errors import ApiError
from whet.serving.images import count_pixels
from whet.serving.lengths import LengthCheck
from whet.serving.requests import ChatRequest, CompletionRequest, ImagePart, Message, Sampling
from whet.serving.tools import begun_call
from whet.types import Media, Prompt

UID = "the request"
_LOG_PROB = 8  # tokens that one log-prob of an answer counts for: it is an object of its own


@dataclass(frozen=True, slots=True)
class Job:
    """Prompts and sampling parameters of a request."""

    prompts: list[Prompt]
    params: SamplingParams
    begun: str = ""  # text of the response that the prompt ends with, so that a call follows
    thinks: bool = False  # True if the prompt ends with the beginning of reasoning

    @property
    def prompt_tokens(self) -> int:
        """Number of tokens of all prompts."""
        return sum(len(prompt.ids) for prompt in self.prompts)


class PromptMaker:
    """Reads requests for one model."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        processor: Processor | None,
        config: Config,
        template: str | None,
        max_len: int,
        vocabulary: int,
        end_ids: frozenset[int],
        form: Format,
    ) -> None:
        """`template` replaces the model\'s own; `max_len` is the most tokens of a prompt with its response.

        `form` is the format of calls.
        """
        self._tokenizer, self._processor, self._rollout = tokenizer, processor, config.worker.rollout
        self._limits = config.serve
        self._chat = ChatTemplate(tokenizer, template, processor, config.data.chat_template_args)
        limit = config.worker.rollout.limit_images
        self._media = MediaReader(processor, config.data, None, limit) if processor is not None else None
        self.max_len, self.vocabulary, self._end_ids = max_len, vocabulary, end_ids
        self._form = form
        self._length = LengthCheck(tokenizer, max_len)

    def pixels(self, request: Sampling) -> int:
        """Pixels of a request's images, from their headers; 400 for more than there may be."""
        if self._media is None or not isinstance(request, ChatRequest):
            return 0
        return count_pixels(request, self._limits.max_images, self._limits.max_pixels)

    def chat(self, request: ChatRequest) -> Job:
        """The prompt that the model's template makes of a chat."""
        if not self._chat.speaks_chat:
            raise ApiError(
                400,
                "the model has no chat template: use /v1/completions, or start the server with "
                "data.override_chat_template",
                param="messages",
            )
        self._check_samples(request, 1)
        if len(request.messages) > self.max_len:  # each takes a token at least
            self._length.check_tokens(len(request.messages), "messages")
        sources = Sources()
        turns = [self._turn(message, sources, number) for number, message in enumerate(request.messages)]
        begun = begun_call(request, self._form)
        tools = [tool.model_dump(exclude_none=True) for tool in request.offered] or None
        self._length.check_size(sum(len(turn["content"]) for turn in turns), "messages")
        text = self._chat.write_turns(turns, UID, tools, True)
        begin, end = self._form.thought
        thinks = text.rstrip().endswith(begin)
        if begun and thinks:  # a call inside of reasoning is none
            begun = f"{end}\n\n{begun}"
        job = self._job(request, [self._prompt(text + begun, sources, False, "messages")])
        return replace(job, begun=begun, thinks=thinks)

    def completion(self, request: CompletionRequest) -> Job:
        """The prompts as they are: text, or token ids."""
        given: Any = request.prompt
        several: list[Any] = given if isinstance(given, list) and not isinstance(given[0], int) else [given]
        self._check_samples(request, len(several))
        prompts = [self._plain(each) for each in several]
        return self._job(request, prompts)

    def _turn(self, message: Message, sources: Sources, number: int) -> dict[str, Any]:
        role = "system" if message.role == "developer" else message.role
        turn: dict[str, Any] = {"role": role, "content": self._text(message.content, sources, number)}
        if message.role == "assistant" and message.tool_calls:
            calls = [call.model_dump() for call in message.tool_calls]
            for call in calls:  # templates write arguments as JSON themselves
                call["function"]["arguments"] = _arguments(call["function"]["arguments"])
            turn["tool_calls"] = calls
        if message.role == "assistant" and message.reasoning_content is not None:
            turn["reasoning_content"] = message.reasoning_content
        if message.role == "tool":
            turn["tool_call_id"] = message.tool_call_id
        elif message.name is not None:
            turn["name"] = message.name
        return turn

    def _text(self, content: Any, sources: Sources, number: int) -> str:
        where = f"messages[{number}].content"
        pieces = []
        for part in [content] if isinstance(content, str) else content or []:
            if isinstance(part, ImagePart):
                if self._media is None:
                    raise ApiError(400, f"{where} has an image, and the model reads text only", param="messages")
                sources.images.append(part.image_url.url)
                pieces.append(IMAGE)
                continue
            text = part if isinstance(part, str) else part.text
            if self._media is not None and PLACE.search(text):
                raise ApiError(400, f"{where}: send an image as a part of type image_url, not as {IMAGE}")
            pieces.append(text)
        return "".join(pieces)

    def _plain(self, given: str | list[int]) -> Prompt:
        if isinstance(given, str):
            return self._prompt(given, Sources(), True, "prompt")
        self._length.check_tokens(len(given), "prompt")
        if max(given) >= self.vocabulary:
            raise ApiError(400, f"prompt: token ids go from 0 to {self.vocabulary - 1}", param="prompt")
        return Prompt(UID, list(given), "")

    def _prompt(self, text: str, sources: Sources, special: bool, param: str) -> Prompt:
        media: Media | None = None
        self._length.check(text, param)
        if self._processor is not None and self._media is not None and _shows(text, sources, self._processor):
            try:
                checked = self._media.sources({}, sources, UID)
                if isinstance(self._processor, GridProcessor):  # others must decode the images to know it
                    self._length.check_tokens(self._media.length(text, checked, UID, special), param)
                ids, media = self._media.read(text, checked, UID, special)
            except MediaError as error:
                raise ApiError(400, str(error), param="messages") from None
        else:
            ids = self._tokenizer(text, add_special_tokens=special, truncation=False, verbose=False)["input_ids"]
        if not ids:  # a model continues something: of nothing, what stands before every text
            first = self._tokenizer.bos_token_id
            ids = [first if first is not None else min(self._end_ids, default=0)]
        self._length.check_tokens(len(ids), param)
        return Prompt(UID, ids, text, media=media)

    def _job(self, request: Sampling, prompts: list[Prompt]) -> Job:
        rollout = self._rollout
        longest = max(len(prompt.ids) for prompt in prompts)
        wanted = min(request.tokens_wanted or self.max_len, self._limits.max_tokens or self.max_len)
        stop = [request.stop] if isinstance(request.stop, str) else request.stop
        top_k = rollout.top_k if request.top_k is None else request.top_k
        params = SamplingParams(
            n=request.n or 1,
            temperature=rollout.temperature if request.temperature is None else request.temperature,
            top_p=rollout.top_p if request.top_p is None else request.top_p,
            top_k=top_k if top_k > 0 else -1,
            min_p=rollout.min_p if request.min_p is None else request.min_p,
            max_tokens=self._check_answer(request, len(prompts), min(wanted, self.max_len - longest)),
            stop=tuple(rollout.stop if stop is None else stop),
            ignore_eos=request.ignore_eos,
            seed=secrets.randbits(53) if request.seed is None else request.seed,
            stop_ids=tuple(sorted(set(request.stop_token_ids or ()) - self._end_ids)),
            top_logprobs=request.tops or 0,
        )
        return Job(prompts, params)

    def _check_samples(self, request: Sampling, prompts: int) -> None:
        """Raise 400 for more samples than there may be, before time is spent on prompts."""
        if (request.n or 1) > self._limits.max_samples:
            raise ApiError(400, f"n={request.n} is more than serve.max_samples={self._limits.max_samples}", param="n")
        self._check_answer(request, prompts, 1)

    def _check_answer(self, request: Sampling, prompts: int, tokens: int) -> int:
        """Return the tokens of a response; 400 if all responses together could be more than a server has room for."""
        responses, most = prompts * (request.n or 1), self._limits.max_answer_tokens
        size = responses * tokens * (1 if request.tops is None else 1 + _LOG_PROB * (1 + request.tops))
        if responses > 1 and size > most:
            raise ApiError(
                400,
                f"{responses} responses of up to {tokens} tokens (a log-prob counts for {_LOG_PROB}) are more than "
                f"serve.max_answer_tokens={most}; lower n, max_tokens or logprobs, or send several requests",
                "answer_too_large",
            )
        return tokens


def _shows(text: str, sources: Sources, processor: Processor) -> bool:
    """Return True if the processor must read a text: it has media, or placeholders without any, which is an error."""
    return bool(sources) or any(token in text for token in processor.tokens)


def _arguments(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # a model may have written anything
        return text
