"""Number of cases a fuzz test runs: a bounded part in `make test`, all of them in `make fuzz`."""

import os


def cases(quick: int, full: int) -> int:
    """Return `full` if WHET_FUZZ=full, else `quick`."""
    return full if os.environ.get("WHET_FUZZ") == "full" else quick
