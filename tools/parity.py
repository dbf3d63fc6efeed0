"""`python tools/parity.py FILE.json`: recompute every entry of a golden file and say how far off we are.

One line for each entry with its largest absolute error. The exit status is 1 where an entry differs by more than 3e-6
or means nothing to us, 2 where the file is not a golden file. Cases of reward functions (scorers.json) are scored with
`match`, which must agree, and under whet's own name, which may differ with the reason that the line gives.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from originals import forks, scorers, verl
from originals.entry import TOLERANCE, Entry, Result, check

from whet.errors import UserError


def read(file: str) -> dict[str, Any]:
    """The content of a golden file."""
    try:
        golden = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: cannot be read: {error}") from error
    except json.JSONDecodeError as error:
        raise UserError(f"{file}: is not JSON: {error}") from error
    if not isinstance(golden, dict):
        raise UserError(f"{file}: is not a golden file: expected an object with inputs and entries")
    return golden


def entries(golden: dict[str, Any], file: str) -> Iterator[Entry]:
    """The entries of a file in either format."""
    if isinstance(golden.get("inputs"), dict):
        return verl.entries(golden)
    if isinstance(golden.get("adv_inputs"), dict):
        return forks.entries(golden)
    raise UserError(
        f"{file}: is not a golden file: it has neither inputs, like verl_0.9.1.json, nor adv_inputs, like forks.json, "
        "nor cases, like scorers.json"
    )


def recompute(file: str) -> list[Result]:
    """What came of each entry of a file."""
    golden = read(file)
    if isinstance(golden.get("cases"), list):
        return list(scorers.results(golden))
    found = list(entries(golden, file))
    if not found:
        raise UserError(f"{file}: holds no entries")
    return [check(entry) for entry in found]


def main(arguments: list[str]) -> int:
    """Print the report of one file; 0 where everything agrees."""
    if len(arguments) != 1:
        print("usage: python tools/parity.py FILE.json", file=sys.stderr)
        return 2
    try:
        results = recompute(arguments[0])
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    width = max(len(result.name) for result in results)
    for result in results:
        print(result.line(width))
    failed = sum(not result.passed for result in results)
    raised = sum(result.note.startswith("the original raises") for result in results)
    agree = len(results) - failed - raised
    differ = sum("differs on purpose" in result.note for result in results)
    purpose = f" ({differ} of them differ on purpose under whet's own name)" if differ else ""
    print(
        f"{agree} of {len(results)} entries agree within {TOLERANCE:g}{purpose}, {raised} raise in the original, "
        f"{failed} fail"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
