"""The process that resamples for the board: a request a line on standard input, an answer a line on standard output.

    python -m whet.resample.worker

It has the weights of one checkpoint at a time, and ends when its input does.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import IO

from whet.errors import UserError
from whet.resample.request import read_request


def main() -> None:
    """Answer requests until there are no more."""
    # What libraries print must not come between answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    from whet.resample.job import Resampler

    with Resampler() as resampler:
        for line in sys.stdin:
            try:
                given = json.loads(line)
                found = resampler.answer(Path(given["folder"]), read_request(given["request"]))
            except UserError as error:
                resampler.close()
                found = {"error": str(error)}
            except Exception as error:
                resampler.close()
                found = {"error": f"resampling failed: {type(error).__name__}: {error}"}
            _send(answers, found)


def _send(answers: IO[str], found: object) -> None:
    answers.write(json.dumps(found, allow_nan=False) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
