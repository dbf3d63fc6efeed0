"""Check token-exact turns on a folder of chat templates: random conversations with tools, reasoning and several calls.

    python tools/turn_check.py FOLDER [--count 1000] [--only NAME]

FOLDER holds `*.jinja` files, such as those of the PyPI packages trl and vllm or of llama.cpp's models/templates. Every
template gets a byte-level tokenizer trained on the spot, with the special tokens that the template mentions.

The policy writes each turn as the template spells it, or (every other conversation) with a blank somewhere inside, so
that no rendering begins with it. What follows the turn is read off the rendering of the whole conversation:
- it begins with the turn's prompt and the turn: `TurnTemplate.append` must return exactly the text behind them, and
  all ids together must be those of the whole text ("kept");
- it does not: `append` must report a rewriting, and return the prompt of the whole conversation ("split").
Turns that a template does not show as they are (it leaves out reasoning, say) have no such rendering: then a rewriting
must be reported wherever a part of the turn is missing; turns without either evidence are counted as "unproven".
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from whet.chat.messages import Message, ToolCall, assistant_message, tool_message
from whet.chat.turns import TurnTemplate
from whet.errors import UserError

WORDS = (
    "the weather in Bern is 21 degrees; f(x) = x + 1, and {a: b} or <b>bold</b>\n\n  spaced\tout: äöü 漢字 🙂 'q' \"d\""
)
SPECIAL = re.compile(
    r"<\|[^|<>\s'\"{}]{1,40}\|>|<｜[^｜<>]{1,40}｜>|<[a-z_]{3,30}>|</[a-z_]{3,30}>|\[/?[A-Z_]{3,20}\]|<\|[a-z_]+>|<[a-z_]+\|>|<[a-z]+:[a-z]+>|\]~b\]|\[e~\[|\]~!b\["
)
ENDS = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eot|>",
    "<end_of_turn>",
    "<turn|>",
    "<｜end▁of▁sentence｜>",
    "<|return|>",
    "<|END_OF_TURN_TOKEN|>",
    "<|end|>",
    "<|end_of_text|>",
    "[e~[",
    "<|end_of_msg|>",
    "<seed:eos>",
    "<|hy_eos|>",
    "<|message_sep|>",
    "<|assistant_end|>",
    "<|endoftext|>",
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Does {name}.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "a city"},
                    "n": {"type": "integer", "description": "a number"},
                },
                "required": ["city"],
            },
        },
    }
    for name in ("forecast", "add")  # words that no text has
]


def make_tokenizer(template: str) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer with a template's special tokens."""
    special = sorted({*SPECIAL.findall(template), "<s>", "</s>"})
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    texts = [WORDS, template, "user\nassistant\nsystem\n\n<tool_call>\n"] * 3
    bpe.train_from_iterator(
        texts,
        trainers.BpeTrainer(vocab_size=900, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False),
    )
    bpe.add_special_tokens([AddedToken(each, special=True, normalized=False) for each in special])
    end = next((each for each in ENDS if each in special), "</s>")
    made = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=end, bos_token="<s>")
    made.chat_template = template
    return made


class Chats:
    """Random conversations, as functions of a seed."""

    def __init__(self, seed: int, most_calls: int = 3) -> None:
        self._random = random.Random(seed)
        self._most_calls = most_calls
        self.respells = seed % 2 == 1  # True if the policy spells turns in its own way

    def text(self, most: int = 8) -> str:
        """Return a few words, the first of which stands nowhere else."""
        words = WORDS.split(" ")
        chosen = [self._random.choice(words) for _ in range(self._random.randint(0, most))]
        return " ".join(["".join(self._random.choices("bdgkmpt", k=9)), *chosen]).strip()

    def turn(self, last: bool) -> Message:
        """Return a turn of the policy's."""
        calls = [] if last else [self._call() for _ in range(min(self._most_calls, self._random.choice((1, 1, 2, 3))))]
        content = self.text() if last or self._random.random() < 0.3 else ""
        reasoning = self.text() if self._random.random() < 0.5 else None
        return assistant_message(content, reasoning, calls)

    def _call(self) -> ToolCall:
        arguments: dict[str, Any] = {"city": self.text(3)}
        if self._random.random() < 0.5:
            arguments["n"] = self._random.randint(-5, 500)
        name = self._random.choice(("forecast", "add"))
        return ToolCall(name, arguments, "".join(self._random.choices("abcdefgh0123456789", k=9)))

    def results(self, turn: Message) -> list[Message]:
        """Return what follows a turn: results of its calls, or the user's next turn."""
        calls = turn.get("tool_calls", [])
        if not calls:
            return [{"role": "user", "content": self.text()}]
        return [tool_message(ToolCall(each["function"]["name"], {}, each["id"]), self.text()) for each in calls]

    def respelt(self, text: str, turn: Message) -> str:
        """Return a turn with a blank inside the first word of a part."""
        names = [call["function"]["name"] for call in turn.get("tool_calls", ())]
        parts = [part for part in (turn.get("reasoning_content"), turn["content"], *names) if part and part in text]
        place = text.rindex(parts[0]) + 1 if parts else 0
        return f"{text[:place]} {text[place:]}" if parts else text

    def rounds(self) -> list[bool]:
        """Return for each turn whether it calls nothing."""
        return [
            last for _ in range(self._random.randint(1, 3)) for last in [False] * self._random.randint(0, 2) + [True]
        ]


def most_calls(turns: TurnTemplate) -> int:
    """Return 1 for a template that refuses several calls in one turn."""
    calls = [ToolCall("add", {"city": "Bern"}, "abcdefghi"), ToolCall("add", {"city": "Rome"}, "bcdefghij")]
    chat = [{"role": "user", "content": "q"}, assistant_message("", None, calls)]
    try:
        turns._rendering.render([*chat, *(tool_message(call, "r") for call in calls)], True)
    except UserError:
        return 1
    return 3


def remembered(render: Callable[..., str]) -> Callable[..., str]:
    """Return a function that renders no chat twice: the check and what it checks ask for the same ones."""
    known: dict[str, str] = {}

    def rendered(messages: list[Message], is_open: bool, form: Any = None) -> str:
        name = json.dumps([messages, is_open, str(form)], sort_keys=True)
        if name not in known:
            if len(known) > 100:
                known.clear()
            known[name] = render(messages, is_open, form)
        return known[name]

    return rendered


def check(template: str, count: int) -> tuple[Counter[str], list[str]]:
    """Return counts of what happened in `count` conversations, and the problems."""
    tokenizer = make_tokenizer(template)
    found: Counter[str] = Counter()
    problems: list[str] = []
    turns = [TurnTemplate(tokenizer, TOOLS), TurnTemplate(tokenizer)]
    for each in turns:
        each._rendering.render = remembered(each._rendering.render)  # type: ignore[method-assign]
    most = most_calls(turns[0])
    found["one call"] = int(most == 1)
    for seed in range(count):
        try:
            converse(turns[seed % 4 == 0], tokenizer, Chats(seed, most), found, problems, f"seed {seed}")
        except UserError as error:
            found["refused"] += 1
            if found["refused"] == 1:
                problems.append(f"refused: {str(error)[:160]}")
    return found, problems


def converse(
    turns: TurnTemplate,
    tokenizer: PreTrainedTokenizerFast,
    chats: Chats,
    found: Counter[str],
    problems: list[str],
    name: str,
) -> None:
    """Hold one conversation; its first wrong token ends it."""

    def encode(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    messages: list[Message] = [{"role": "user", "content": chats.text()}]
    seen = turns.prompt(messages)
    held = turns._rendering.render_all([(messages, True)])[0]  # text that the engine holds
    if seen != encode(held):
        found["wrong"] += 1
        problems.append(f"{name}: the first prompt has other ids than its text")
        return
    merges = False
    for last in chats.rounds():
        turn = chats.turn(last)
        added = chats.results(turn)
        chat = [*messages, turn, *added]
        before, after, full = turns._rendering.render_all([(messages, True), ([*messages, turn], False), (chat, True)])
        text, is_native = written_text(turns, turn, before, after)
        drawn = chats.respelt(text, turn) if chats.respells else text
        written = encode(drawn)
        result = turns.append([*messages, turn], written, added)
        messages = chat
        found["turns"] += 1
        keeps = full.startswith(before + text) if is_native else None
        if keeps is None and not _shows(turn, before, full):
            keeps = False
        kind = "split" if result.rewritten else "kept"
        if keeps is None:
            found["unproven"] += 1
        else:
            found[kind if drawn == text else f"{kind} respelt"] += 1
        found[f"reason:{result.reason}"] += result.rewritten
        tail = full if result.rewritten else full[len(before + text) :] if keeps else result.text
        wrong = _difference(result.text, tail) if keeps in (None, not result.rewritten) else f"{kind} ({result.reason})"
        # A tokenizer may merge over the beginning of a turn: then the whole has other tokens of the same text.
        merges = not result.rewritten and (merges or seen + written != encode(held + drawn))
        found["merged"] += merges
        seen = result.ids if result.rewritten else seen + written + result.ids
        held = tail if result.rewritten else held + drawn + tail
        if not wrong and not merges and seen != encode(held):
            wrong = "ids differ from those of the text"
        if wrong:
            found["wrong"] += 1
            problems.append(f"{name}: {wrong} after {(before + drawn)[-90:]!r}")
            return


def _shows(turn: Message, before: str, full: str) -> bool:
    """Return True if a rendering begins with a turn's prompt and has all parts of the turn behind it."""
    names = [call["function"]["name"] for call in turn.get("tool_calls", ())]
    parts = [turn["content"].strip(), (turn.get("reasoning_content") or "").strip(), *names]
    return full.startswith(before) and all(part in full[len(before) :] for part in parts)


def _difference(text: str, wanted: str) -> str:
    if text == wanted:
        return ""
    at = next((i for i, (a, b) in enumerate(zip(text, wanted)) if a != b), min(len(text), len(wanted)))
    return f"{text[max(0, at - 40) : at + 40]!r} not {wanted[max(0, at - 40) : at + 40]!r}"


def written_text(turns: TurnTemplate, turn: Message, before: str, after: str) -> tuple[str, bool]:
    """Return a turn as the template spells it, and True; or a spelling of our own where it leaves out a part."""
    encoder = turns._encoder
    ends = [encoder.texts[end] for end in turns.ends if end in encoder.texts]
    shown = after[len(before) :]
    parts = [turn["content"].strip(), (turn.get("reasoning_content") or "").strip()]
    calls = Counter(call["function"]["name"] for call in turn.get("tool_calls", ()))
    whole = all(part in shown for part in parts) and all(shown.count(name) >= n for name, n in calls.items())
    if after.startswith(before) and whole:
        start = max(shown.rfind(part) for part in (*filter(None, parts), *calls))  # behind which the turn may end
        stops = [shown.find(end, start) + len(end) for end in [*ends, "<|call|>"] if end in shown[start:]]
        cut = min(stops, default=None)
        if cut is not None:
            return shown[:cut], True
        for marker in ("<|observation|>", "<|user|>"):  # of templates in which the next turn's head ends this one
            if marker in encoder.texts.values() and (marker == "<|user|>") == (not turn.get("tool_calls")):
                return shown + marker, True
    thought = f"<think>{turn['reasoning_content']}</think>" if "reasoning_content" in turn else ""
    made = "".join(json.dumps(call["function"]) for call in turn.get("tool_calls", ()))
    return f"{thought}{turn['content']}{made}{ends[0] if ends else ''}", False


def main() -> int:
    """Check every template of a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--only", default="")
    parser.add_argument("--problems", type=int, default=2)
    options = parser.parse_args()
    wrong = 0
    for file in sorted(options.folder.glob("*.jinja")):
        if options.only not in file.name:
            continue
        try:
            found, problems = check(file.read_text(encoding="utf-8"), options.count)
        except Exception as error:
            print(f"{file.stem:45} cannot be used: {type(error).__name__}: {str(error)[:150]}")
            continue
        wrong += found["wrong"]
        names = ("turns", "kept", "kept respelt", "split", "split respelt", "unproven", "merged", "refused", "wrong")
        counts = " ".join(f"{name.replace(' ', '_')}={found[name]}" for name in (*names, "one call"))
        reasons = " ".join(f"{name[7:]}={n}" for name, n in sorted(found.items()) if name.startswith("reason:") and n)
        print(f"{file.stem:45} {counts} [{reasons}]", flush=True)
        for problem in problems[: options.problems]:
            print(f"    {problem}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
