"""`worker.rollout.env=openenv:http://127.0.0.1:8000`: environments behind an OpenEnv server, one session per sample.

The turn's text fills a field of the server's action, or is the whole action as a JSON object. Of the observation the
policy reads one field, or all of them, a line each; `worker.rollout.env_args` says which.
"""

from __future__ import annotations

import base64
import functools
import io
import json
import urllib.request
from collections.abc import Callable
from typing import Any

from whet.envs.loading import ARGS_KEY
from whet.envs.packages import require
from whet.envs.protocol import Action, StepResult
from whet.envs.replies import answer_in
from whet.errors import UserError
from whet.types import Prompt

SECONDS = 10.0  # for a server to answer before the run
_OWN = ("metadata", "done", "reward")  # fields that every action or observation has
_CASTS: dict[str, Callable[[str], Any]] = {"integer": int, "number": float, "boolean": json.loads}
REFUSED = "VALIDATION_ERROR"  # of an action that does not fit the server's schema


class OpenEnvEnv:
    """One session on a server, from `reset` to the step that says it is done."""

    def __init__(
        self, argument: str, field: str | None = None, text: str | None = None, image: str | None = None
    ) -> None:
        """`field` of the action is filled by the turn; `text` and `image` are fields of the observation."""
        self._url, self._text, self._image = argument.rstrip("/"), text, image
        self._properties = _properties(self._url)
        self._field = field or _only_field(self._properties)
        self._client: Any = None

    @staticmethod
    def check(argument: str, field: str | None = None, text: str | None = None, image: str | None = None) -> None:
        """Raise `UserError` where no server answers, or its action has another field."""
        require("openenv.core", "openenv")
        _schema.cache_clear()  # a server may be another one than in the run before
        env = OpenEnvEnv(argument, field, text, image)
        if field is not None and field not in env._properties:
            raise UserError(f"{ARGS_KEY}.field={field}: the server's action has {', '.join(env._properties) or 'none'}")

    async def reset(self, prompt: Prompt, seed: int) -> Any:
        """Begin a session with the row's column `seed`, or the seed that samples of a group share."""
        from openenv.core.generic_client import GenericEnvClient

        own = prompt.extra.get("seed")
        # Calls are timed by worker.rollout.env_timeout; the client's own limit must not come before it.
        self._client = GenericEnvClient(base_url=self._url, message_timeout_s=24 * 3600)
        await self._client.connect()
        result = await self._client.reset(seed=seed if own is None else int(own))
        return self._read(result.observation)

    async def step(self, action: Action) -> StepResult:
        """Send the action that the turn is; one that the server refuses changes nothing and is told why."""
        asked = self._asked(answer_in(action, "action"))
        if isinstance(asked, str):
            return asked, 0.0, False, {"invalid": 1}
        try:
            result = await self._client.step(asked)
        except RuntimeError as error:
            if REFUSED not in str(error):
                raise
            return f"That is no action: {self._described()}.", 0.0, False, {"invalid": 1}
        done = bool(result.done)
        end = {"end": "done"} if done else {}
        return self._read(result.observation), float(result.reward or 0.0), done, {"invalid": 0, **end}

    async def close(self) -> None:
        """End the session."""
        if self._client is not None:
            await self._client.disconnect()

    def _asked(self, said: str) -> dict[str, Any] | str:
        """Return the action that a turn is, or what to tell the policy."""
        try:
            whole = json.loads(said)
        except ValueError:
            whole = None
        if isinstance(whole, dict):
            return whole
        if self._field is None:
            return f"That is no action: {self._described()}."
        cast = _CASTS.get(self._properties.get(self._field, {}).get("type", "string"))
        try:
            return {self._field: said if cast is None else cast(said)}
        except ValueError:
            return f"That is no action: {self._described()}."

    def _described(self) -> str:
        shown = ", ".join(f"{name} ({_kind(given)})" for name, given in self._properties.items())
        if self._field is not None:
            return f"write {self._field} ({_kind(self._properties.get(self._field, {}))})"
        return f"write a JSON object with {shown}"

    def _read(self, observation: dict[str, Any]) -> Any:
        """Return the observation as text, with its picture where it has one."""
        fields = {name: value for name, value in observation.items() if name not in _OWN}
        image = fields.pop(self._image, None) if self._image else None
        if self._text is not None:
            if self._text not in fields:
                raise KeyError(f"the observation has no field {self._text}; it has {', '.join(fields) or 'none'}")
            written = _written(fields[self._text])
        elif len(fields) == 1:
            written = _written(next(iter(fields.values())))
        else:
            written = "\n".join(f"{name}: {_written(value)}" for name, value in fields.items())
        return written if image is None else {"text": written, "images": [_picture(image)]}


def openenv_rows(argument: str, numbers: range) -> list[dict[str, Any]]:
    """Return rows with a seed each, whose prompt is what the server says about itself."""
    about = _answer(argument.rstrip("/"), "metadata")
    prompt = str(about.get("description") or about.get("name") or "Play.")
    return [{"prompt": prompt, "seed": number} for number in numbers]


def _properties(url: str) -> dict[str, dict[str, Any]]:
    """Return the fields of the server's action, as JSON schemas."""
    found = _schema(url).get("action", {}).get("properties", {})
    return {name: given for name, given in found.items() if name not in _OWN}


def _only_field(properties: dict[str, dict[str, Any]]) -> str | None:
    return next(iter(properties)) if len(properties) == 1 else None


@functools.lru_cache(maxsize=64)
def _schema(url: str) -> dict[str, Any]:
    return _answer(url, "schema")


def _answer(url: str, path: str) -> dict[str, Any]:
    if not url.startswith(("http://", "https://")):
        raise UserError(f"expected the address of a server, as in openenv:http://127.0.0.1:8000, not {url!r}")
    try:
        with urllib.request.urlopen(f"{url}/{path}", timeout=SECONDS) as response:
            answer = json.load(response)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise UserError(f"no OpenEnv server answers at {url}/{path}: {reason}") from error
    if not isinstance(answer, dict):
        raise UserError(f"{url}/{path} is no OpenEnv server: it answered with a {type(answer).__name__}")
    return answer


def _kind(given: dict[str, Any]) -> str:
    return str(given.get("type", "any"))


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _picture(value: Any) -> Any:
    """Return a picture: base64 of a file, a data URL, or rows of pixels."""
    from PIL import Image

    if isinstance(value, str):
        data = value.partition(",")[2] if value.startswith("data:") else value
        return Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")
    import numpy as np

    return Image.fromarray(np.asarray(value, dtype=np.uint8)).convert("RGB")


ENV = OpenEnvEnv
ROWS = openenv_rows
