"""The one error a user causes and a user can mend.

Anything that is wrong with what the user gave us (a key, a file, a row, a function) raises `UserError` with a
message that names the thing and says what to do. The command line prints it without a traceback and exits with 2.
Everything else is a bug of ours and keeps its traceback.
"""


class DivergedError(Exception):
    """Training whose numbers are no longer finite: the message says what stands; exit code 1, without a traceback."""


class UserError(Exception):
    """Bad input: the message names the key, file or row and says how to fix it."""


class RewardsFailedError(Exception):
    """No sample could be scored: the message shows the function's last error; exit code 1, without a traceback."""
