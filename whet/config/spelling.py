"""The name somebody probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The most similar of `names`, or None when nothing is close; dotted names may match by their last part."""
    names = list(names)
    folded = {known.lower(): known for known in reversed(names)}
    leaf = name.lower().rpartition(".")[2]
    same_leaf = [known for known in folded if known.rpartition(".")[2] == leaf]
    pool = same_leaf or list(folded)
    found = difflib.get_close_matches(name.lower(), pool, n=1, cutoff=0.0 if same_leaf else 0.6)
    return folded[found[0]] if found else None


def hint(name: str, names: Iterable[str]) -> str:
    """`; did you mean X?`, or nothing when no name is close."""
    found = nearest(name, names)
    return f"; did you mean {found}?" if found else ""
