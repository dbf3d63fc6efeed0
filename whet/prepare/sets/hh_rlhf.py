"""HH-RLHF (Bai et al., 2022): conversations with a chosen and a rejected reply, for reward models and alignment.

Reads transcripts (Anthropic/hh-rlhf: chosen, rejected) and their division into prompt, chosen and rejected
(Dahoas/full-hh-rlhf). The chosen reply stands in for the truth; it is not meant to be compared with.
"""

from __future__ import annotations

import re
from typing import Any

from whet.data.formats import Columns
from whet.prepare.registry import DataSet, Drop, Item, text

_SPEAKER = re.compile(r"(?:^|\n\n)(Human|Assistant):")
_ROLES = {"Human": "user", "Assistant": "assistant"}


def _convert(row: Columns, split: str) -> Item:
    if "prompt" in row:
        before, chosen, rejected = turns(text(row, "prompt")), text(row, "chosen"), text(row, "rejected")
        if before and before[-1] == {"role": "assistant", "content": ""}:
            before.pop()
        source = "Dahoas/full-hh-rlhf"
    else:
        before, chosen = _divided(turns(text(row, "chosen")))
        other, rejected = _divided(turns(text(row, "rejected")))
        if other != before:
            raise Drop("chosen and rejected reply to different conversations")
        source = "Anthropic/hh-rlhf"
    if not before or before[-1]["role"] != "user" or not all(turn["content"] for turn in before):
        raise Drop("conversation that does not end with a human turn, or has empty ones")
    if chosen == rejected:
        raise Drop("chosen and rejected are the same")
    return Item(before, chosen, source, "alignment", "model", extra={"chosen": chosen, "rejected": rejected})


def turns(transcript: str) -> list[dict[str, Any]]:
    """A transcript as a chat; consecutive turns of one speaker are joined."""
    pieces = _SPEAKER.split(transcript)
    if pieces[0].strip():
        raise Drop("transcript that does not begin with a speaker")
    found: list[dict[str, Any]] = []
    for speaker, said in zip(pieces[1::2], pieces[2::2]):
        if found and found[-1]["role"] == _ROLES[speaker]:
            found[-1]["content"] = f"{found[-1]['content']}\n\n{said.strip()}".strip()
        else:
            found.append({"role": _ROLES[speaker], "content": said.strip()})
    return found


def _divided(conversation: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    if not conversation or conversation[-1]["role"] != "assistant" or not conversation[-1]["content"]:
        raise Drop("transcript without a reply at its end")
    return conversation[:-1], conversation[-1]["content"]


SET = DataSet(
    "conversations with a chosen and a rejected reply",
    "Anthropic/hh-rlhf, Dahoas/full-hh-rlhf",
    {"train": "Dahoas/full-hh-rlhf@train", "test": "Dahoas/full-hh-rlhf@test"},
    _convert,
    "prompt, chosen, rejected; or chosen, rejected",
    note="The chosen reply is the answer column; a reward model scores, not a comparison with it.",
)
