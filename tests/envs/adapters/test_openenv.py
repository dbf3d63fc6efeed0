"""OpenEnv: sessions on a server, actions that fit and that do not, pictures, and servers that are not there."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from whet.data.files import read_rows
from whet.envs.loading import env_factory
from whet.envs.observations import read_observation
from whet.envs.protocol import Action
from whet.errors import UserError
from whet.types import Prompt

pytest.importorskip("openenv.core", reason="needs whet[openenv]")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
ROW = Prompt("x", [], "")
SERVER = """
import base64, io, sys
import uvicorn
from PIL import Image
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app

class Number(Action):
    number: int

class Heard(Observation):
    text: str = ""
    picture: str = ""

def drawn(size):
    buffer = io.BytesIO()
    Image.new("RGB", (size, 8)).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()

class Guess(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.secret = (seed or 0) % 10
        return Heard(text="Guess.", picture=drawn(8), done=False, reward=0.0)

    def step(self, action, timeout_s=None, **kwargs):
        if action.number == 99:
            raise ValueError("ninety-nine")
        done = action.number == self.secret
        text = "yes" if done else "higher" if action.number < self.secret else "lower"
        return Heard(text=text, picture=drawn(16), done=done, reward=1.0 if done else None)

    @property
    def state(self):
        return State(episode_id="a", step_count=0)

app = create_fastapi_app(Guess, Number, Heard, max_concurrent_envs=64)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("openenv") / "server.py"
    path.write_text(SERVER)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, str(path), str(port)])
    address, end = f"http://127.0.0.1:{port}", time.monotonic() + 120
    try:
        while not answers(address):
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.2)
        yield address
    finally:
        process.kill()
        process.wait()


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5):
            return True
    except OSError:
        return False


def play(name: str, check: Callable[[Any], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        env: Any = env_factory(name, options=options)()
        try:
            await check(env)
        finally:
            await env.close()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_an_episode_with_actions_that_fit_and_that_do_not(server: str) -> None:
    async def check(env: Any) -> None:
        assert await env.reset(ROW, 7) == "Guess."
        for turn in ("seven", '{"numbr": 4}', "3.5"):
            observation, reward, done, info = await env.step(Action(turn))
            assert observation == "That is no action: write number (integer)."
            assert (reward, done, info) == (0.0, False, {"invalid": 1})
        assert await env.step(Action("<think>9</think>3")) == ("higher", 0.0, False, {"invalid": 0})
        assert (await env.step(Action('{"number": 8}')))[0] == "lower"
        with pytest.raises(RuntimeError, match="ninety-nine"):  # which costs the sample: the server raised
            await env.step(Action("99"))
        assert await env.step(Action("7")) == ("yes", 1.0, True, {"invalid": 0, "end": "done"})

    play(f"openenv:{server}", check, text="text")


def test_sessions_are_apart_and_rows_seed_them(server: str) -> None:
    rows = read_rows(f"openenv:{server}@3-4")
    assert [row["seed"] for row in rows] == [3, 4]
    assert rows[0]["prompt"]

    async def run() -> None:
        envs: list[Any] = [env_factory(f"openenv:{server}")() for _ in rows]
        for env, row in zip(envs, rows):
            assert "text: Guess." in await env.reset(Prompt("x", [], "", extra=row), 1)
        found = [(await env.step(Action(str(row["seed"]))))[2] for env, row in zip(envs, rows)]
        assert found == [True, True]
        for env in envs:
            await env.close()

    asyncio.run(run())


def test_pictures_are_seen(server: str) -> None:
    async def check(env: Any) -> None:
        first = read_observation(await env.reset(ROW, 7), "user")
        second = read_observation((await env.step(Action("1")))[0], "user")
        assert first is not None
        assert second is not None
        assert first.messages == [{"role": "user", "content": "<image>Guess."}]
        assert [each.images[0].size for each in (first, second)] == [(8, 8), (16, 8)]

    play(f"openenv:{server}", check, text="text", image="picture")


def test_what_is_not_there_is_refused(server: str) -> None:
    with pytest.raises(UserError, match=r"field=word: the server's action has number"):
        env_factory(f"openenv:{server}", options={"field": "word"})
    with pytest.raises(UserError, match=r"no OpenEnv server answers at http://127\.0\.0\.1:9"):
        env_factory("openenv:http://127.0.0.1:9")
    with pytest.raises(UserError, match="expected the address of a server"):
        env_factory("openenv:here")
