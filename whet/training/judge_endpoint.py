"""A judge on a server that speaks OpenAI's chat completions: paced, tried again, and never followed elsewhere."""

from __future__ import annotations

import asyncio
import json
import os
import random
from email.message import Message as Headers
from http.client import HTTPException
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any

from whet.errors import UserError
from whet.rewards.judges.asking import AskError, Message
from whet.rewards.pace import Pace, TooSlowError
from whet.rollout.engines.server.client import Client

if TYPE_CHECKING:
    from whet.config.schema.reward_terms import JudgeConfig

KEY = "worker.reward.judge"
AGAIN = (408, 409, 425, 429, 500, 502, 503, 504, 529)
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0  # seconds between attempts, doubled each time
QUOTED = 400


class Endpoint:
    """One model of a server. Used within one event loop."""

    def __init__(self, settings: JudgeConfig) -> None:
        self._settings = settings
        self._at = f"{KEY}.base_url={settings.base_url}"
        key = os.environ.get(settings.key_env, "").strip()
        if not key.isprintable() or not key.isascii():
            raise UserError(f"{KEY}.key_env: the variable {settings.key_env} holds characters that no API key has")
        self._client = Client(settings.base_url or "", key or None)
        self._model = settings.model
        self._file = f"{gettempdir()}/whet-judge-{os.urandom(8).hex()}"
        self._pace = Pace(
            self._file,
            settings.requests_per_second,
            settings.tokens_per_second,
            KEY,
            "an hour (lower the number of them)",
        )

    async def __call__(self, messages: list[Message], _key: str) -> str:
        """Return the judge's text."""
        settings = self._settings
        body = {
            "model": await self._name(),
            "messages": messages,
            "temperature": settings.temperature,
            settings.max_tokens_key: settings.max_tokens,
        }
        size = sum(len(message["content"]) for message in messages) // 4 + settings.max_tokens
        reply = await self._request("POST", "/chat/completions", body | settings.extra_body, size)
        try:
            content = reply["choices"][0]["message"]["content"] or ""
            if isinstance(content, list):
                content = "".join(part.get("text", "") for part in content)
            return str(content)
        except (KeyError, IndexError, TypeError, AttributeError):
            detail = f"{self._at}: this is no answer of a chat API: {str(reply)[:QUOTED]}"
            raise AskError("bad result", "no chat answer", detail) from None

    def close(self) -> None:
        """Remove the file of the rate."""
        Path(self._file).unlink(missing_ok=True)

    async def _name(self) -> str:
        """Return the model's name, asked for once where the config leaves it open."""
        if self._model is None:
            listed = await self._request("GET", "/models", None, 0)
            try:
                self._model = str(listed["data"][0]["id"])
            except (KeyError, IndexError, TypeError):
                detail = f"{self._at}: the server lists no model at /models; name one by {KEY}.model"
                raise AskError("raised", "no model", detail, settings=True) from None
        return self._model

    async def _request(self, method: str, path: str, body: dict[str, Any] | None, tokens: int) -> Any:
        """Send a request, again after a pause where that may help, and return the JSON of the answer."""
        settings = self._settings
        payload = b"" if body is None else json.dumps(body).encode()
        failure, trouble = "raised", ""
        for attempt in range(settings.retries + 1):
            await self._turn(tokens)
            wait = min(LONGEST_WAIT, FIRST_WAIT * 2**attempt) * random.uniform(0.5, 1.0)
            try:
                async with asyncio.timeout(settings.timeout):
                    status, headers, data = await self._client.exchange(method, path, payload)
            except TimeoutError:
                failure, trouble = "timeout", f"no answer to {path} in {settings.timeout:g} s ({KEY}.timeout)"
            except (OSError, HTTPException, ValueError) as error:
                failure, trouble = "raised", f"cannot be reached ({str(error) or type(error).__name__}); is it up?"
            else:
                if 200 <= status < 300:
                    return self._parsed(data)
                failure, trouble = "raised", f"{path} answered {status}: {_message(data)}"
                if status not in AGAIN:
                    raise self._refused(status, trouble)
                wait = max(wait, _retry_after(headers))
            if attempt < settings.retries:
                await asyncio.sleep(wait)
        detail = f"{self._at}: {trouble} (after {settings.retries + 1} attempts)"
        raise AskError(failure, failure, detail, settings=True)

    async def _turn(self, tokens: int) -> None:
        """Wait until the rates allow another request."""
        if self._pace.requests_per_second is None and self._pace.tokens_per_second is None:
            return
        try:
            await asyncio.sleep(self._pace.reserve(tokens, 3600.0))
        except TooSlowError as error:
            raise AskError("timeout", "rate", str(error)) from None

    def _refused(self, status: int, trouble: str) -> AskError:
        if status in (401, 403):
            advice = f". Set the variable {self._settings.key_env} ({KEY}.key_env) to the server's API key"
        elif status == 404:
            advice = f". Check {KEY}.base_url (up to /v1) and {KEY}.model"
        elif 300 <= status < 400:
            advice = ". Redirects are not followed; name the address itself"
        else:
            advice = ""
        return AskError("raised", f"status {status}", f"{self._at}: {trouble}{advice}", settings=bool(advice))

    def _parsed(self, data: bytes) -> Any:
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            detail = f"{self._at}: the answer is no JSON: {_message(data)}"
            raise AskError("bad result", "no JSON", detail) from None


def _retry_after(headers: Headers) -> float:
    """Seconds that the server asks to wait, where it says so in seconds."""
    text = str(headers.get("Retry-After", "")).strip()
    return min(float(text), 600.0) if text.isdecimal() and len(text) < 9 else 0.0


def _message(data: bytes) -> str:
    """Return the message of an error, without the JSON around it."""
    text = data.decode("utf-8", "replace").strip()
    try:
        inner = json.loads(text)["error"]
        text = inner["message"] if isinstance(inner, dict) else str(inner)
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    return str(text)[:QUOTED]
