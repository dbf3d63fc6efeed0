"""The text of `whet data --list`."""

from __future__ import annotations

from whet.prepare.registry import SETS


def listing() -> str:
    """A line for each data set, with its splits and the columns that its files must have."""
    lines = ["Data sets of whet data; --from PATH reads files in the hub's columns:"]
    for name in SETS.names:
        found = SETS.find(name)
        lines += [
            f"  {name:<14} {found.title} ({', '.join(found.splits)})",
            f"  {'':<14} {found.home}: {found.columns}",
        ]
    return "\n".join(lines)
