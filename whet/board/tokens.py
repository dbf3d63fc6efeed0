"""Tokens of one sample: texts by the run's own tokenizer, numbers of the token records, segments by who wrote them."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from whet.board.sample_files import READ_ERRORS

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MOST_TOKENS = 20_000
_LARGEST_TOKENIZER = 200_000_000  # bytes


# Columns of the token records, by the names that the page has for them.
_RECORDED = {
    "old": "old_log_probs",
    "new": "new_log_probs",
    "entropies": "entropies",
    "advantages": "advantages",
    "versions": "versions",
}


def token_view(folder: Path, sample: Mapping[str, Any], record: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the tokens of a response, of its row of samples or of its token record; None where the run kept none.

    `texts` is None without a tokenizer. A character that several tokens make up stands with the last of them.
    """
    own = record or sample
    ids, mask = own.get("token_ids"), own.get("token_mask")
    log_probs = own.get("sampler_log_probs") if record else own.get("token_log_probs")
    if ids is None or mask is None or log_probs is None or not len(ids) == len(mask) == len(log_probs):
        return None
    shown, by_model = list(ids[:MOST_TOKENS]), [bool(each) for each in mask[:MOST_TOKENS]]
    view: dict[str, Any] = {
        "ids": shown,
        "by_model": by_model,
        "log_probs": _numbers(log_probs, by_model),
        "texts": token_texts(folder, shown),
        "total": len(ids),
    }
    for name, column in _RECORDED.items():
        values = record.get(column) if record else None
        if values is not None and len(values) == len(ids):
            view[name] = _numbers(values, by_model)
    return view


def _numbers(values: Sequence[float], by_model: Sequence[bool]) -> list[float | None]:
    """Return finite numbers; tokens that the policy did not write have none, though 0 is stored for them."""
    return [each if own and math.isfinite(each) else None for each, own in zip(values, by_model)]


def read_record(folder: Path, split: str, step: int, row: int, length: int) -> dict[str, Any] | None:
    """Return the token record of a sample; None where there is none, or none that can be read and fits."""
    file = folder / "tokens" / f"{split}_{step:06d}.parquet"
    try:
        with pq.ParquetFile(file) as content:
            for i in range(content.num_row_groups):
                rows = content.read_row_group(i, columns=["row"])["row"].to_pylist()
                if row in rows:
                    found: dict[str, Any] = content.read_row_group(i).slice(rows.index(row), 1).to_pylist()[0]
                    return found if len(found.get("token_ids") or ()) == length else None
    except READ_ERRORS:
        return None
    return None


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
