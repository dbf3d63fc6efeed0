"""Every sample of a step as one Parquet file, for people to read and query."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from whet.checkpoint.durable import replacing
from whet.types import Sample


def write_samples(path: Path, step: int, samples: Sequence[Sample], token_log_probs: bool) -> None:
    """Write the samples in one piece: a file that is there is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = samples_table(step, samples, token_log_probs)
    with replacing(path) as side:
        pq.write_table(table, side, compression="zstd")


def samples_table(step: int, samples: Sequence[Sample], token_log_probs: bool) -> pa.Table:
    """The columns that docs/metrics.md lists; scores besides `overall` get a column each, null where not given."""
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "step": (pa.int64(), [step] * len(samples)),
        "uid": (pa.string(), [clean(sample.prompt.uid) for sample in samples]),
        "index": (pa.int64(), [sample.index for sample in samples]),
        "group": (pa.int64(), [sample.group for sample in samples]),
        "prompt": (pa.string(), [clean(sample.prompt.text) for sample in samples]),
        "response": (pa.string(), [clean(sample.text) for sample in samples]),
        "answer": (pa.string(), [answer_text(sample.prompt.answer) for sample in samples]),
        "finish": (pa.string(), [sample.finish for sample in samples]),
        "length": (pa.int64(), [len(sample.ids) for sample in samples]),
        "turns": (pa.int64(), [sample.turns for sample in samples]),
        "version": (pa.int64(), [sample.version for sample in samples]),
        "reward": (pa.float64(), [sample.reward if "overall" in sample.scores else None for sample in samples]),
        "failure": (pa.string(), [sample.failure and clean(sample.failure) for sample in samples]),
        "dropped": (pa.bool_(), [sample.dropped for sample in samples]),
        "advantage": (pa.float64(), [sample.advantage for sample in samples]),
    }
    for name in sorted({name for sample in samples for name in sample.scores} - {"overall"}):
        columns[f"score/{clean(name)}"] = (pa.float64(), [sample.scores.get(name) for sample in samples])
    if token_log_probs:
        columns["token_ids"] = (pa.list_(pa.int32()), [sample.ids for sample in samples])
        columns["token_mask"] = (pa.list_(pa.int8()), [sample.mask for sample in samples])
        columns["token_log_probs"] = (pa.list_(pa.float32()), [sample.log_probs for sample in samples])
    return pa.table({name: pa.array(values, type=kind) for name, (kind, values) in columns.items()})


def answer_text(answer: Any) -> str | None:
    """The answer as text: strings as they are, anything else as JSON."""
    if answer is None or isinstance(answer, str):
        return answer if answer is None else clean(answer)
    return clean(json.dumps(answer, ensure_ascii=False, default=str))


def clean(text: str) -> str:
    """Text that UTF-8 can hold: half a surrogate pair from a JSON file becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")
