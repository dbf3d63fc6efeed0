"""Find the tokens of a chat that its assistant wrote: those a model learns from.

Where the chat template marks them with `{% generation %}`, its word is taken. Any other template is asked twice for
each turn of the assistant's: what the model is given before it writes, and what stands there afterwards. The turn is
the difference. Templates that write earlier turns differently once later ones follow (most that leave out old thoughts
do) so get a text for each way in which a turn is written when its time comes, as in a conversation with the model.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

from whet.data.chat import ChatTemplate, Message, Span
from whet.data.conversation import called, with_arguments_as_text, without_words
from whet.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Marked:
    """A text, and the spans of its characters that the assistant wrote, in order."""

    text: str
    spans: tuple[Span, ...]
    is_loose: bool = False  # spans may hold what the template writes behind a turn, such as a line break

    def pieces(self) -> list[tuple[str, int]]:
        """The text cut where the writer changes, each piece with 1 if it is the assistant's."""
        edges = [0, *chain.from_iterable(self.spans), len(self.text)]
        cut = [(self.text[a:b], i % 2) for i, (a, b) in enumerate(pairwise(edges))]
        return [(text, wrote) for text, wrote in cut if text]


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token ids, and 1 for each that the assistant wrote."""

    ids: list[int]
    mask: list[int]


def marked_chat(
    chat: ChatTemplate, messages: list[Message], tools: list[Any] | None, uid: str, last_only: bool
) -> list[Marked]:
    """The chat with the assistant's turns marked: one text, or several where the template rewrites what came before.

    Calls of tools are put in the form that the template can read, without `None` for words that are not there.
    """
    if not any("tool_calls" in message for message in messages):
        return _marked(chat, messages, tools, uid, last_only)
    silent = without_words(messages)
    found: dict[str, list[Marked]] = {}
    errors: list[UserError] = []
    for name, form in {
        "null": silent,
        "null, texts": with_arguments_as_text(silent),
        "words": messages,
        "words, texts": with_arguments_as_text(messages),
    }.items():
        try:
            found.setdefault(name.partition(",")[0], _marked(chat, form, tools, uid, last_only))
        except UserError as error:
            errors.append(error)
    if not found:
        raise errors[2]  # of the chat as it stands
    chosen = min(found.values(), key=lambda texts: sum(each.text.count("None") for each in texts))
    learned = "".join(each.text[begin:end] for each in chosen for begin, end in each.spans)
    for name in called(messages[-1:] if last_only else messages):
        if name not in learned:
            raise UserError(
                f"{uid}: the chat template does not write the call of {name!r}: it knows no tools. Give one that does "
                "with data.override_chat_template, or write calls into the content of turns."
            )
    return chosen


def _marked(
    chat: ChatTemplate, messages: list[Message], tools: list[Any] | None, uid: str, last_only: bool
) -> list[Marked]:
    if chat.marks(tools):
        text, spans = chat.write_marked(messages, uid, tools)
        if not spans:
            raise UserError(f"{uid}: the chat template marks nothing of this chat with {{% generation %}}.")
        return [Marked(text, spans[-1:] if last_only else spans)]
    turns = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    found: list[Marked] = []
    for i in turns[-1:] if last_only else turns:
        before = chat.write_turns(messages[:i], uid, tools, is_open=True)
        after = chat.write_turns(messages[: i + 1], uid, tools, is_open=False)
        if not after.startswith(before):
            raise UserError(
                f"{uid}: the chat template does not write turn {i + 1} where it lets the model begin, after "
                f"{before[-40:]!r}: it would be learned in a place where the model never writes it. Give a template "
                "that does with data.override_chat_template, or use prompt and response columns."
            )
        turn = (len(before), len(after))
        if found and before.startswith(found[-1].text):
            found[-1] = Marked(after, (*found[-1].spans, turn), is_loose=True)
        else:
            found.append(Marked(after, (turn,), is_loose=True))
    return found


def encode(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[Marked], ends: Set[int], special: bool = False
) -> list[Tokens]:
    """Token ids of texts, cut where the model begins and ends to write: there no token reaches over.

    Where spans are loose, a turn ends with the first token that `ends` it.
    """
    pieces = [each.pieces() for each in texts]
    first = _ids(tokenizer, [cut[0][0] for cut in pieces], special)
    later = iter(_ids(tokenizer, [text for cut in pieces for text, _ in cut[1:]], special=False))
    whole = None if _can_cut(tokenizer) else _ids(tokenizer, [each.text for each in texts], special)
    found = []
    for i, (text, cut, begin) in enumerate(zip(texts, pieces, first)):
        ids = [begin, *(next(later) for _ in cut[1:])]
        joined = list(chain.from_iterable(ids))
        if whole is None or joined == whole[i] or _spell(tokenizer, joined) == _spell(tokenizer, whole[i]):
            tokens = Tokens(joined, [wrote for each, (_, wrote) in zip(ids, cut) for _ in each])
        else:
            tokens = _by_offsets(tokenizer, text, whole[i], special)
        found.append(_without_tail(tokenizer, tokens, ends) if text.is_loose else tokens)
    return found


def _can_cut(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return True if encoding in pieces gives the whole's ids; some tokenizers begin every text with a space."""
    a, b = _ids(tokenizer, ["a", "b"], special=False)
    return _spell(tokenizer, a + b) == "ab"


def _ids(tokenizer: PreTrainedTokenizerBase, texts: list[str], special: bool) -> list[list[int]]:
    if not texts:
        return []
    return tokenizer(texts, add_special_tokens=special, return_attention_mask=False, truncation=False, verbose=False)[
        "input_ids"
    ]


def _spell(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> Any:
    return tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def _by_offsets(tokenizer: PreTrainedTokenizerBase, marked: Marked, ids: list[int], special: bool) -> Tokens:
    """The tokens of the uncut text; those with any character of the assistant's are the assistant's."""
    if not tokenizer.is_fast:
        raise UserError(
            "worker.actor.model.tokenizer_path: this tokenizer cannot say which characters a token stands for, and "
            "begins texts with a space of its own; use a model whose folder has a tokenizer.json"
        )
    made = tokenizer(marked.text, add_special_tokens=special, return_offsets_mapping=True, verbose=False)
    mask = [
        int(any(begin < b and a < end for a, b in marked.spans) and begin < end)
        for begin, end in made["offset_mapping"]
    ]
    return Tokens(ids, mask)


def _without_tail(tokenizer: PreTrainedTokenizerBase, tokens: Tokens, ends: Set[int]) -> Tokens:
    """End each turn with the first token that ends it: what is blank behind that, or ends it again, is not written.

    Where the next turn's first token is what ends this one, it is learned.
    """
    ids, mask = tokens.ids, list(tokens.mask)
    last = [i for i, wrote in enumerate(mask) if wrote and (i + 1 == len(mask) or not mask[i + 1])]
    for i in last:
        at, end = i, None
        while at >= 0 and mask[at] and (ids[at] in ends or not _spell(tokenizer, [ids[at]]).strip()):
            end = at if ids[at] in ends else end
            at -= 1
        if end is not None:
            mask[end + 1 : i + 1] = [0] * (i - end)
        elif i + 1 < len(ids) and ids[i + 1] in ends:
            mask[i + 1] = 1
    return Tokens(ids, mask)
