"""`Request`: which sample of a run to draw again, and what is to be different."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from whet.errors import UserError

MOST_CONTINUATIONS = 64
MOST_ALTERNATIVES = 20
MOST_PROMPT = 1_000_000  # characters
KINDS = ("again", "branch", "tokens")
_WHOLE = {"step": 0, "row": 0, "n": 1, "at": 0, "token": 0, "checkpoint": 0, "top": 1}  # least of each number


@dataclass(frozen=True, slots=True)
class Request:
    """A job.

    `again` draws the sample with the same random numbers and compares it token by token. `branch` keeps the first `at`
    tokens, or none, and draws n continuations under what is given here. `tokens` draws nothing: it computes log-prob,
    entropy and likeliest alternatives of each token under the weights.
    """

    kind: str
    step: int
    row: int  # in the step's file of samples
    split: str = "train"
    at: int | None = None  # response tokens that are kept; the rest is drawn
    token: int | None = None  # id of the token to put there, before drawing goes on
    text: str | None = None  # or its text, which must be one token
    temperature: float | None = None  # None: the run's
    prompt: str | None = None  # another prompt, with its template applied; None: the sample's
    n: int = 1
    live: bool = False  # drawn by the engine of the run itself, which is going on, between two steps
    checkpoint: int | None = None  # step of the checkpoint, 0 for the first weights; None: the policy that wrote it
    top: int = 5  # alternatives of each token

    def as_json(self) -> dict[str, Any]:
        """Return the request as JSON can hold it."""
        return asdict(self)


def read_request(given: Any) -> Request:
    """Check a request that came as JSON; a `UserError` names what is wrong with it."""
    if not isinstance(given, Mapping):
        raise UserError("resample: a request is an object, such as {kind: again, step: 3, row: 0}")
    names = [each.name for each in fields(Request)]
    for name in given:
        if name not in names:
            raise UserError(f"resample: there is no {name!r}; a request has {', '.join(names)}")
    for name in ("kind", "step", "row"):
        if given.get(name) is None:
            raise UserError(f"resample: {name} must be given")
    for name, least in _WHOLE.items():
        value = given.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise UserError(f"resample: {name} must be a whole number of {least} or more")
    if not isinstance(given.get("live", False), bool):
        raise UserError("resample: live must be true or false")
    for name in ("kind", "split", "text", "prompt"):
        if given.get(name) is not None and not isinstance(given[name], str):
            raise UserError(f"resample: {name} must be a text")
    request = Request(**{name: value for name, value in given.items() if value is not None})
    _check(request)
    return request


def _check(request: Request) -> None:
    if request.kind not in KINDS:
        raise UserError(f"resample: kind must be one of {', '.join(KINDS)}")
    if request.split not in ("train", "val"):
        raise UserError("resample: split must be train or val")
    if request.n > MOST_CONTINUATIONS:
        raise UserError(f"resample: n must be at most {MOST_CONTINUATIONS}")
    if request.top > MOST_ALTERNATIVES:
        raise UserError(f"resample: top must be at most {MOST_ALTERNATIVES}")
    heat = request.temperature
    if heat is not None and (isinstance(heat, bool) or not isinstance(heat, int | float) or not 0 <= heat < math.inf):
        raise UserError("resample: temperature must be a number of 0 or more")
    if request.prompt is not None and not 0 < len(request.prompt) <= MOST_PROMPT:
        raise UserError(f"resample: prompt must have 1 to {MOST_PROMPT} characters")
    if request.token is not None and request.text is not None:
        raise UserError("resample: give token, which is an id, or text, not both")
    changes = {"at": request.at, "token": request.token, "text": request.text, "temperature": request.temperature}
    if request.kind != "branch":
        given = [name for name, value in (changes | {"prompt": request.prompt}).items() if value is not None]
        if given:
            raise UserError(f"resample: {given[0]} is for kind=branch")
    if request.live and (request.kind != "branch" or request.checkpoint is not None):
        raise UserError("resample: live is for kind=branch, and without checkpoint: the run draws with its own weights")
    if (request.token is not None or request.text is not None) and request.at is None:
        raise UserError("resample: with another token, at says where it goes: the number of tokens before it")
