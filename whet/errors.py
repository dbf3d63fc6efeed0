"""Errors that the command line reports without a traceback; foremost the one a user causes and a user can mend.

Anything that is wrong with what the user gave us (a key, a file, a row, a function) raises `UserError` with a
message that names the thing and says what to do. The command line prints it without a traceback and exits with 2.
Everything else is a bug of ours and keeps its traceback.
"""

from __future__ import annotations


class DivergedError(Exception):
    """Training whose numbers are no longer finite: the message says what stands; exit code 1, without a traceback."""


class UserError(Exception):
    """Bad input: the message names the key, file or row and says how to fix it."""


class RewardsFailedError(Exception):
    """No sample could be scored: the message shows the function's last error; exit code 1, without a traceback."""


class WorkerRaisedError(Exception):
    """A worker's method raised; the message holds the rank and its traceback, `cause` the exception if it travels."""

    def __init__(self, rank: int, summary: str, trace: str, cause: BaseException | None = None, who: str = "") -> None:
        super().__init__(f"{who or f'rank {rank}'} raised {summary}\n{trace.rstrip()}")
        self.rank = rank
        self.cause = cause


class WorkerLostError(Exception):
    """A worker died or hangs; the message names it, why, and its last words. The group is closed."""

    def __init__(self, ranks: list[int], message: str) -> None:
        super().__init__(message)
        self.ranks = ranks
