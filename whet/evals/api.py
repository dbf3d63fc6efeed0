"""Answers of a server that speaks OpenAI's chat completions: bounded, paced, tried again, and kept.

Every answer is written to a cache under what was asked: a job that was stopped, or one that asks the same again, asks
only for what is missing. What cannot succeed by trying again (a key that is wrong, a model that is not there) ends the
job at once; a question that the server refuses is counted as failed and costs nothing else.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import time
from email.message import Message
from http.client import HTTPException
from typing import Any

from whet.config.schema.jobs import ApiConfig
from whet.errors import UserError
from whet.evals.answers import Answer
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.server.client import Client
from whet.tracking.journal import Journal

FOR_A_WHILE = (408, 409, 425, 429, 500, 502, 503, 504, 529)
FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0  # seconds between tries, doubled each time
FIRST_TRIES = 3  # to reach a server that has never answered
LONGEST_QUOTE = 400
_FINISH = {"stop": "stop", "length": "length"}


class Refused(Exception):  # noqa: N818
    """The server will not answer this question, whatever is tried."""


class ApiModel:
    """One model of a server. Used within one event loop."""

    def __init__(self, config: ApiConfig, cache: Journal) -> None:
        self._config, self._cache = config, cache
        self.address = (config.base_url or "").rstrip("/")
        self._client = Client(self.address, os.environ.get(config.key_env))
        self.name = config.model or ""
        self._slots = asyncio.Semaphore(config.concurrency)
        self._pace = _Pace(config.requests_per_minute)
        self.asked = 0  # answers of the server, and not of the cache
        self._reached = False  # whether anybody was there
        self._answered = False  # whether any request went well: until then a refusal is about the settings

    async def connect(self) -> None:
        """Find the model's name where the config leaves it open."""
        if self.name:
            return
        listed = await self._request("GET", "/models", None)
        try:
            self.name = listed["data"][0]["id"]
        except (KeyError, IndexError, TypeError):
            raise UserError(f"{self._at}: the server lists no model at /models; name one by eval.api.model") from None

    async def answer(self, messages: list[dict[str, Any]], params: SamplingParams, seed: int, index: int) -> Answer:
        """One answer, from the cache or from the server. Samples of a question differ in their index."""
        body = self._body(messages, params, seed)
        key = hashlib.sha256(json.dumps([self.address, body, index], sort_keys=True).encode()).hexdigest()
        if key in self._cache:
            return Answer(**self._cache[key])
        try:
            async with self._slots:
                reply = await self._request("POST", "/chat/completions", body)
        except Refused as error:
            if not self._answered:
                raise UserError(f"{self._at}: the first question was refused: {error}") from None
            return Answer("", "abort", 0, failure=str(error))
        answer = self._read(reply)
        self._answered = True
        self.asked += 1
        self._cache.add(key, answer.as_record())
        return answer

    def _body(self, messages: list[dict[str, Any]], params: SamplingParams, seed: int) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.name,
            "messages": messages,
            "temperature": params.temperature,
            "top_p": params.top_p,
            self._config.max_tokens_key: params.max_tokens,
        }
        if params.stop:
            body["stop"] = list(params.stop)
        for name, value, default in (("top_k", params.top_k, -1), ("min_p", params.min_p, 0.0)):
            if value != default:  # not of OpenAI's API, but of most servers
                body[name] = value
        if self._config.seed:
            body["seed"] = seed
        return body | self._config.extra_body

    def _read(self, reply: Any) -> Answer:
        try:
            choice = reply["choices"][0]
            message = choice["message"]
            text = message.get("content") or ""
        except (KeyError, IndexError, TypeError, AttributeError):
            raise UserError(f"{self._at}: this is no answer of a chat API: {str(reply)[:LONGEST_QUOTE]}") from None
        if isinstance(text, list):
            text = "".join(part.get("text", "") for part in text if isinstance(part, dict))
        tokens = (reply.get("usage") or {}).get("completion_tokens")
        finish = _FINISH.get(choice.get("finish_reason") or "", "stop")
        return Answer(text, finish, tokens if isinstance(tokens, int) else len(text.split()))

    async def _request(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        payload = b"" if body is None else json.dumps(body).encode()
        trouble = ""
        for attempt in range(self._config.retries + 1):
            await self._pace.turn()
            wait = min(LONGEST_WAIT, FIRST_WAIT * 2**attempt) * random.uniform(0.75, 1.25)
            try:
                async with asyncio.timeout(self._config.timeout):
                    status, headers, data = await self._client.exchange(method, path, payload)
            except TimeoutError:
                trouble = f"no answer in {self._config.timeout:g} seconds (eval.api.timeout)"
            except (OSError, HTTPException) as error:
                trouble = f"cannot be reached ({str(error) or type(error).__name__})"
                if attempt == FIRST_TRIES - 1 and not self._reached:
                    raise UserError(f"{self._at}: {trouble}; is the server up?") from error
            else:
                self._reached = True
                if 200 <= status < 300:
                    return self._parsed(data)
                trouble = f"{path} answered {status}: {_message(data)}"
                if status not in FOR_A_WHILE:
                    raise self._no(status, trouble)
                wait = max(wait, _retry_after(headers))
            if attempt < self._config.retries:
                await asyncio.sleep(wait)
        raise UserError(
            f"{self._at}: {trouble}; gave up after {self._config.retries + 1} tries. The same command goes on from here"
        )

    def _no(self, status: int, trouble: str) -> Exception:
        if status in (401, 403):
            return UserError(f"{self._at}: {trouble}. Set the variable {self._config.key_env} to the server's API key")
        if status == 404:
            return UserError(f"{self._at}: {trouble}. Check eval.api.base_url (up to /v1) and eval.api.model")
        return Refused(trouble)

    def _parsed(self, data: bytes) -> Any:
        try:
            return json.loads(data)
        except ValueError:
            raise UserError(f"{self._at}: the answer is no JSON: {_message(data)}") from None

    @property
    def _at(self) -> str:
        return f"eval.api.base_url={self.address}"


class _Pace:
    """Lets requests begin at even distances, so many in a minute."""

    def __init__(self, per_minute: float | None) -> None:
        self._distance = 60.0 / per_minute if per_minute else 0.0
        self._next = 0.0

    async def turn(self) -> None:
        """Wait for one's turn."""
        now = time.monotonic()
        mine = max(now, self._next)
        self._next = mine + self._distance
        if mine > now:
            await asyncio.sleep(mine - now)


def _retry_after(headers: Message) -> float:
    """Seconds that the server asks to wait, where it says so in seconds."""
    try:
        return min(LONGEST_WAIT * 10, max(0.0, float(headers.get("Retry-After", "0"))))
    except ValueError:
        return 0.0


def _message(data: bytes) -> str:
    """Return the message of an error, without the JSON around it."""
    text = data.decode("utf-8", "replace").strip()
    try:
        inner = json.loads(text)["error"]
        text = inner["message"] if isinstance(inner, dict) else str(inner)
    except (ValueError, KeyError, TypeError):
        pass
    return str(text)[:LONGEST_QUOTE]
