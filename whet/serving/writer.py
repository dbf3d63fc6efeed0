"""One response on its way to the client: pieces of tokens in; text, tool calls and log-probs out."""

from __future__ import annotations

from dataclasses import dataclass, field

from whet.rollout.engine import Piece
from whet.serving.answers import ChatLogprobs, CompletionLogprobs, Finish, TokenLogprob, TopToken
from whet.serving.errors import ApiError
from whet.serving.requests import Sampling
from whet.serving.text import Detokenizer, StopCut, Vocabulary
from whet.serving.tools import Call, CallReader, ToolSplit


@dataclass(slots=True)
class Added:
    """Addition of a piece to a response."""

    text: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    tops: list[list[tuple[int, float]]] = field(default_factory=list)
    finish: Finish | None = None
    first_call: int = 0  # calls that the response had made before these

    def __iadd__(self, other: Added) -> Added:
        self.text += other.text
        self.reasoning += other.reasoning
        if not self.calls:
            self.first_call = other.first_call
        for mine, theirs in zip(self._lists(), other._lists()):
            mine.extend(theirs)
        self.finish = other.finish
        return self

    def _lists(self) -> tuple[list, ...]:
        return self.calls, self.ids, self.log_probs, self.tops


class Writer:
    """Keeps what one response has not shown yet, and how many calls it has made."""

    def __init__(
        self, vocabulary: Vocabulary, request: Sampling, stop: tuple[str, ...], reader: CallReader | None
    ) -> None:
        """`reader` takes calls out of the response; None where no tools are offered."""
        self._vocabulary = vocabulary
        hidden = vocabulary.hidden if reader is None else reader.hidden
        self._detokenizer = Detokenizer(vocabulary, hidden if request.skip_special_tokens else frozenset())
        self._cut = StopCut(stop, request.include_stop_str_in_output)
        self._split = ToolSplit(reader) if reader is not None else None
        self._offset = 0
        self.calls = 0  # made so far

    @property
    def stop(self) -> str | None:
        """Return the stop string that ended the response, if one did."""
        return self._cut.found

    def add(self, piece: Piece) -> Added:
        """Return the part of a piece that the client may see."""
        if piece.finish == "abort":
            raise ApiError(500, "the engine gave the response up", "aborted")
        text = self._cut.add(self._detokenizer.add(piece.ids))
        if piece.finish is not None:
            text += self._cut.add(self._detokenizer.finish())
            text += self._cut.finish()
        added = Added(text, "", [], piece.ids, piece.log_probs, piece.tops, piece.finish)
        if self._split is not None:
            self._take_calls(added)
        return added

    def _take_calls(self, added: Added) -> None:
        assert self._split is not None
        ended = added.finish is not None
        added.text, added.reasoning = self._split.add(added.text)
        if ended:
            rest, reasoning, added.calls = self._split.finish()
            added.text, added.reasoning = added.text + rest, added.reasoning + reasoning
        added.first_call = self.calls
        self.calls += len(added.calls)
        if added.finish == "stop" and self.calls:
            added.finish = "tool_calls"

    def chat_logprobs(self, added: Added) -> ChatLogprobs:
        """Log-probs as chats have them."""
        tops = added.tops or [[] for _ in added.ids]
        content = [
            TokenLogprob(
                **self._token(token, log_prob), top_logprobs=[TopToken(**self._token(*each)) for each in likeliest]
            )
            for token, log_prob, likeliest in zip(added.ids, added.log_probs, tops)
        ]
        return ChatLogprobs(content=content)

    def completion_logprobs(self, added: Added) -> CompletionLogprobs:
        """Log-probs as completions have them; offsets count the characters of the tokens before."""
        tokens = [self._vocabulary.token(token)[0] for token in added.ids]
        offsets = []
        for text in tokens:
            offsets.append(self._offset)
            self._offset += len(text)
        tops = [{self._vocabulary.token(token)[0]: value for token, value in place} for place in added.tops]
        return CompletionLogprobs(
            tokens=tokens, token_logprobs=added.log_probs, top_logprobs=tops or None, text_offset=offsets
        )

    def _token(self, token: int, log_prob: float) -> dict:
        text, as_bytes = self._vocabulary.token(token)
        return {"token": text, "logprob": log_prob, "bytes": as_bytes}
