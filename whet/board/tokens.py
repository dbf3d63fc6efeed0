"""Tokens of one sample: their texts by the run's own tokenizer, log-probs, and segments by who wrote them."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MOST_TOKENS = 20_000
_LARGEST_TOKENIZER = 200_000_000  # bytes


def token_view(
    folder: Path, ids: Sequence[int] | None, mask: Sequence[int] | None, log_probs: Sequence[float] | None
) -> dict[str, Any] | None:
    """Return the tokens of a response; None where the run did not keep them (`trainer.log_token_log_probs`).

    `texts` is None without a tokenizer. A character that several tokens make up stands with the last of them.
    """
    if ids is None or mask is None or log_probs is None or not len(ids) == len(mask) == len(log_probs):
        return None
    shown = list(ids[:MOST_TOKENS])
    return {
        "ids": shown,
        "by_model": [bool(each) for each in mask[:MOST_TOKENS]],
        # Tokens that the policy did not write have no log-prob; 0 is stored for them.
        "log_probs": [
            each if own and math.isfinite(each) else None
            for each, own in zip(log_probs[:MOST_TOKENS], mask[:MOST_TOKENS])
        ],
        "texts": token_texts(folder, shown),
        "total": len(ids),
    }


def token_texts(folder: Path, ids: Sequence[int]) -> list[str] | None:
    """Return the text of each token; None if the run folder has no tokenizer that can be read."""
    file = _tokenizer_file(folder)
    if file is None:
        return None
    try:
        tokenizer = _load(file, file.stat().st_mtime_ns)
    except Exception:  # tokenizers raises plain Exception for a file that it cannot read
        return None
    from tokenizers.decoders import DecodeStream

    stream = DecodeStream(skip_special_tokens=False)
    texts = []
    for token in ids:
        try:
            texts.append(stream.step(tokenizer, token) or "")
        except Exception:  # an id that the tokenizer does not have, likewise
            texts.append(f"[{token}]")
    return texts


def _tokenizer_file(folder: Path) -> Path | None:
    """Return the tokenizer of the newest checkpoint, or of the folder of the model that the run began with."""
    from whet.plots.runs import read_settings

    steps = sorted(folder.glob("global_step_*/actor/huggingface/tokenizer.json"), key=lambda file: file.stat().st_mtime)
    settings = read_settings(folder / "config.yaml")
    named = [settings.get(f"worker.actor.model.{key}") for key in ("tokenizer_path", "model_path")]
    places = [
        *reversed(steps),
        *(Path(name).expanduser() / "tokenizer.json" for name in named if isinstance(name, str)),
    ]
    return next((each for each in places if each.is_file() and each.stat().st_size < _LARGEST_TOKENIZER), None)


@functools.lru_cache(maxsize=4)
def _load(file: Path, changed: int) -> Tokenizer:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(file))
