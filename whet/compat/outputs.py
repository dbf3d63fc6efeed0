"""Write samples of `whet generate` as the other systems' main_generation does: a row per prompt, `responses` a list."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from whet.compat.translation import Translation

_OURS = ("uid", "index", "prompt_text", "response", "finish", "response_length", "token_ids", "token_log_probs")


def list_responses(made: Translation, say: Callable[[str], None]) -> None:
    """Rewrite the Parquet file of a translated generation with one row per prompt and a column of lists."""
    setting = made.settings.get("generate.output")
    if setting is None or not str(setting.value).endswith(".parquet"):
        return
    path = Path(str(setting.value)).expanduser()
    table = pq.read_table(path)
    rows: dict[str, list[int]] = {}
    for at, uid in enumerate(table.column("uid").to_pylist()):
        rows.setdefault(uid, []).append(at)
    responses = table.column("response").to_pylist()
    kept = table.take([places[0] for places in rows.values()])
    kept = kept.drop_columns([name for name in _OURS if name in kept.column_names])
    lists = pa.array([[responses[at] for at in places] for places in rows.values()], type=pa.list_(pa.string()))
    side = path.with_name(f"{path.name}.whet")
    pq.write_table(kept.append_column("responses", lists), side)
    side.replace(path)
    say(f"{len(rows)} prompts with a list of responses each: {path}")
