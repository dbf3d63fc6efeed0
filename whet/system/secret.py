"""The secret that the ranks of a job share, by which they know each other."""

from __future__ import annotations

import os
import secrets

from filelock import FileLock

from whet.system import private

SECRET_VARIABLE = "WHET_RANK_SECRET"
_HEX_DIGITS = 64


def of_this_machine() -> str:
    """A secret of this user on this machine, made when first asked for; any number of processes may ask at once."""
    folder = private.folder()
    file = folder / "rank_secret"
    with FileLock(folder / "rank_secret.lock"):
        known = private.read_own(file)
        if known is not None and len(known) == _HEX_DIGITS:
            return known
        made = secrets.token_hex(_HEX_DIGITS // 2)
        file.unlink(missing_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as content:
            content.write(made)
        return made
