"""Outcome of a method of a worker, in a form that travels to the caller."""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass, field
from typing import Any

from whet.errors import UserError, WorkerRaisedError


@dataclass(frozen=True)
class Failure:
    """An exception on its way from a worker to the caller."""

    summary: str
    trace: str
    pickled: bytes | None
    user: str | None  # the sentence of a UserError

    def error(self, rank: int, who: str = "") -> Exception:
        """Return the error to raise: a `UserError` with its sentence, anything else with its rank and traceback."""
        if self.user is not None:
            return UserError(self.user)
        return WorkerRaisedError(rank, self.summary, self.trace, _unpickled(self.pickled), who)


@dataclass(frozen=True)
class Outcome:
    """Result of a method, or its error."""

    value: Any = None
    failure: Failure | None = field(default=None)


def failure_of(error: BaseException) -> Failure:
    """An exception in a form that always travels."""
    summary = "".join(traceback.format_exception_only(error)).strip()
    trace = "".join(traceback.format_exception(error))
    user = str(error) if isinstance(error, UserError) else None
    return Failure(summary, trace, _pickled(error), user)


def _pickled(error: BaseException) -> bytes | None:
    """None for one that cannot be pickled, and for one that cannot be read back: exceptions with arguments often."""
    try:
        content = pickle.dumps(error)
        pickle.loads(content)
    except Exception:  # anything may happen in a user's __reduce__
        return None
    return content


def _unpickled(content: bytes | None) -> BaseException | None:
    try:
        return pickle.loads(content) if content else None
    except Exception:  # its class cannot be imported here
        return None
