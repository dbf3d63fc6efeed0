"""A reward server: samples go there as JSON, scores come back. It runs in reward workers, under their limits.

POST url  {"responses": [...], "ground_truths": [...], "rows": [{...}, ...]}
200       [1.0, {"overall": 0.5, "accuracy": 1.0}, ...]   or   {"scores": [...]}
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import random
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from whet.rewards.pace import Pace, TooSlowError
from whet.rewards.programs.opened import seconds_left

AGAIN = (408, 425, 429, 500, 502, 503, 504)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0  # seconds between attempts; doubled each time
_LARGEST = 64 << 20  # bytes of an answer
_KEY = "worker.reward.url"


class RemoteRewardError(Exception):
    """The server did not score these samples; others it may."""


class UnreachableError(RemoteRewardError):
    """The server cannot be reached, refuses the token, or fails whatever it is asked: other samples would fail too."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A token must not be sent to another address than the one in the config."""

    def redirect_request(self, *_: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirects)


def remote(
    reward_inputs: list[dict[str, Any]] | dict[str, Any],
    *,
    url: str,
    token_env: str,
    retries: int,
    file: str,
    requests_per_second: float | None,
    tokens_per_second: float | None,
) -> Any:
    """Have samples scored by a server; all of a call, or one."""
    rows = [reward_inputs] if isinstance(reward_inputs, dict) else reward_inputs
    body = {
        "responses": [row["response"] for row in rows],
        "ground_truths": [row["ground_truth"] for row in rows],
        "rows": [{name: row[name] for name in row if name not in ("response", "ground_truth")} for row in rows],
    }
    try:
        data = json.dumps(body, default=_plain, skipkeys=True).encode("utf-8", "backslashreplace")
    except (TypeError, ValueError, RecursionError) as error:
        raise RemoteRewardError(f"{_KEY}: the row cannot be written as JSON: {error}") from error
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if token := os.environ.get(token_env):
        headers["Authorization"] = f"Bearer {token}"
    pace = Pace(file, requests_per_second, tokens_per_second)
    tokens = sum(int(row.get("response_length", 0)) for row in rows)
    answer = _ask(urllib.request.Request(url, data, headers), pace, tokens, retries, token_env)
    scores = answer.get("scores") if isinstance(answer, Mapping) else answer
    if not isinstance(scores, list):
        raise RemoteRewardError(f'{_KEY}={url} answered neither a list of scores nor {{"scores": [...]}}')
    if isinstance(reward_inputs, dict):
        if len(scores) != 1:
            raise RemoteRewardError(f"{_KEY}={url} answered {len(scores)} scores for one sample")
        return scores[0]
    return scores


def _ask(request: urllib.request.Request, pace: Pace, tokens: int, retries: int, token_env: str) -> Any:
    """Send a request, again after a pause where that may help, and return the JSON of the answer."""
    url, pause, why = request.full_url, _FIRST_PAUSE, ""
    for attempt in range(retries + 1):
        wait: float | None = None
        try:
            pace.wait(tokens, seconds_left())
            with _opener.open(request, timeout=max(0.05, min(seconds_left(), 86_400.0))) as response:
                return _read(response, url)
        except TooSlowError as error:
            raise RemoteRewardError(str(error)) from None
        except urllib.error.HTTPError as error:
            why = f"{_KEY}={url} answered {error.code}: {error.read(500).decode(errors='replace')}".rstrip(": ")
            if error.code in (401, 403):
                raise UnreachableError(f"{why}\nIt wants another token: set ${token_env}") from None
            if error.code not in AGAIN:
                raise RemoteRewardError(why) from None
            wait = _seconds(error.headers.get("Retry-After"))
        except (OSError, http.client.HTTPException) as error:
            why = f"{_KEY}={url} cannot be reached: {getattr(error, 'reason', error)}"
        wait = pause * random.uniform(0.5, 1.0) if wait is None else wait
        if attempt == retries or wait >= seconds_left():
            break
        time.sleep(wait)
        pause = min(2 * pause, _LONGEST_PAUSE)
    raise UnreachableError(f"{why} (after {attempt + 1} attempts)")


def _read(response: Any, url: str) -> Any:
    data = response.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise RemoteRewardError(f"{_KEY}={url} answered more than {_LARGEST >> 20} MiB")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RemoteRewardError(f"{_KEY}={url} answered no JSON: {error}") from None


def _seconds(text: str | None) -> float | None:
    """Seconds of a header Retry-After; dates are not read."""
    return min(float(text), 3600.0) if text is not None and text.strip().isdecimal() else None


def _plain(value: Any) -> Any:
    """A value of a row that JSON has no form for: bytes as base64, arrays as lists, anything else as its text."""
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if hasattr(value, "tolist"):
        return value.tolist()
    return list(value) if isinstance(value, (set, frozenset)) else str(value)
