"""Rules about the data that samples show: rows that are there several times, and validation rows in training.

Rows are told apart by their prompts. Those with pictures, and those of environments, are not judged: the same question
is asked about other pictures, and the same game is played from other seeds.
"""

from __future__ import annotations

from collections import defaultdict

from whet.doctor.findings import Finding
from whet.doctor.samples import Row, RunSamples

LEAST, SHARE = 8, 0.1


def duplicated(samples: RunSamples) -> Finding | None:
    """Find prompts that stand in several rows of the training data."""
    names: defaultdict[str, set[str]] = defaultdict(set)
    for rows in samples.first.values():
        for row in filter(_tells, rows):
            names[_text(row.get("prompt"))].add(str(row.get("uid")))
    rows_seen = sum(len(uids) for uids in names.values())
    again = sum(len(uids) for uids in names.values() if len(uids) > 1)
    if rows_seen < LEAST or again < SHARE * rows_seen:
        return None
    example = max(names.values(), key=len)
    return Finding(
        "duplicates",
        min(samples.first),
        f"{again} of the first {rows_seen} rows that were trained on have a prompt that another row has too (such as "
        f"{', '.join(sorted(example)[:3])}): the data is smaller than it looks. Remove duplicates from "
        "data.train_files.",
    )


def leaked(samples: RunSamples) -> Finding | None:
    """Find validation prompts that are trained on."""
    trained = {
        _text(row.get("prompt")) for rows in [*samples.first.values(), samples.last] for row in rows if _tells(row)
    }
    validated = {_text(row.get("prompt")) for row in samples.validated if _tells(row)}
    both = trained & validated
    if len(validated) < LEAST or len(trained) < LEAST or len(both) < SHARE * min(len(trained), len(validated)):
        return None
    return Finding(
        "leak",
        min(samples.first),
        f"{len(both)} of {len(trained)} prompts of the training steps that were looked at are validation prompts too: "
        "validation measures what was memorised. Take data.val_files from rows that are not in data.train_files.",
    )


def _tells(row: Row) -> bool:
    """True if a row's prompt says all about it."""
    return not row.get("media") and row.get("end") is None


def _text(prompt: object) -> str:
    return " ".join(str(prompt or "").split())
