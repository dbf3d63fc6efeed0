"""Many streaming clients against `whet serve`: tokens a second, times, memory, and whether anything was lost.

    python bench/serve.py --clients 64 --seconds 60 [--model whet/quickstart] [--tokens 64] [key=value ...]
    python bench/serve.py --url http://127.0.0.1:8000/v1 --model NAME --checked 0    # another server that is running

Starts a server of its own, with these keys of whet's config. Every client streams one chat after the other, each with a
seed of its own; some clients vanish in the middle of an answer. Afterwards streamed texts are asked for again, whole:
the two must be equal. `--processes` splits the clients, of which one process can serve only so many.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx2 as httpx
import psutil

TOKEN = "a-token-for-the-benchmark"
VANISH = 0.05  # of all requests are left in the middle


@dataclass
class Seen:
    """What the clients have seen."""

    texts: dict[int, str] = field(default_factory=dict)  # by seed
    errors: list[str] = field(default_factory=list)
    first: list[float] = field(default_factory=list)  # seconds to the first token
    whole: list[float] = field(default_factory=list)
    tokens: int = 0
    vanished: int = 0
    memory: list[int] = field(default_factory=list)
    checked: int = 0

    def add(self, other: Seen) -> None:
        """Take over what the clients of another process have seen."""
        self.texts |= other.texts
        for mine, theirs in zip(self._lists(), other._lists()):
            mine.extend(theirs)
        self.tokens, self.vanished = self.tokens + other.tokens, self.vanished + other.vanished
        self.checked += other.checked

    def _lists(self) -> list[list[Any]]:
        return [self.errors, self.first, self.whole, self.memory]


@contextlib.contextmanager
def server(model: str, *arguments: str) -> Iterator[tuple[str, str, int]]:
    """A `whet serve` process: its address, the model's name, and the number of the process."""
    environment = os.environ | {"WHET_SERVE_TOKEN": TOKEN}
    command = [sys.executable, "-m", "whet.cli", "serve", model, "serve.port=0", *arguments]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("serving "):
                _, name, _, address = line.split()
                yield address, name, process.pid
                break
        else:
            raise SystemExit("the server did not start")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def body(name: str, seed: int, tokens: int, stream: bool) -> dict[str, Any]:
    """A chat; its length differs from seed to seed."""
    question = " ".join(str(random.Random(seed).randint(0, 9)) for _ in range(4 + seed % 9))
    return {
        "model": name,
        "messages": [{"role": "user", "content": question}],
        "seed": seed,
        "max_tokens": 1 + seed % tokens,
        "ignore_eos": True,
        "stream": stream,
        "stream_options": {"include_usage": True} if stream else None,
    }


async def stream(client: httpx.AsyncClient, name: str, seed: int, tokens: int, seen: Seen) -> None:
    """One streamed chat."""
    vanishes = random.Random(seed).random() < VANISH
    began, text, events, done, usage = time.monotonic(), "", 0, False, None
    async with client.stream("POST", "/chat/completions", json=body(name, seed, tokens, True)) as answer:
        if answer.status_code != 200:
            await answer.aread()
            raise RuntimeError(f"{answer.status_code}: {answer.text}")
        async for line in answer.aiter_lines():
            if not line:
                continue
            data = line.removeprefix("data: ")
            if data == "[DONE]":
                done = True
                break
            event = json.loads(data)
            if "error" in event:
                raise RuntimeError(event["error"]["message"])
            if not events:
                seen.first.append(time.monotonic() - began)
            events += 1
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                text += choice["delta"].get("content") or ""
            if vanishes and events > 2:
                seen.vanished += 1
                return
    if not done or usage is None or usage["completion_tokens"] != 1 + seed % tokens:
        raise RuntimeError(f"seed {seed}: the stream ended early ({usage})")
    seen.whole.append(time.monotonic() - began)
    seen.tokens += usage["completion_tokens"]
    seen.texts[seed] = text


async def load(address: str, name: str, pid: int | None, args: argparse.Namespace, part: int) -> Seen:
    """All clients of one process at once, then their texts again; the first process watches the server's memory."""
    seen, seeds = Seen(), itertools.count(part, args.processes)
    until, clients = time.monotonic() + args.seconds, -(-args.clients // args.processes)
    limits = httpx.Limits(max_connections=clients)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(base_url=address, headers=headers, timeout=120, limits=limits) as client:

        async def one() -> None:
            while time.monotonic() < until:
                try:
                    await stream(client, name, next(seeds), args.tokens, seen)
                except (RuntimeError, httpx.HTTPError) as error:
                    seen.errors.append(f"{type(error).__name__}: {error}")

        async def watch() -> None:
            while pid is not None and part == 0 and time.monotonic() < until:
                seen.memory.append(psutil.Process(pid).memory_info().rss)
                await asyncio.sleep(0.5)

        await asyncio.gather(watch(), *(one() for _ in range(clients)))

        async def again(seed: int) -> None:
            answer = (await client.post("/chat/completions", json=body(name, seed, args.tokens, False))).json()
            if answer["choices"][0]["message"]["content"] != seen.texts[seed]:
                seen.errors.append(f"seed {seed}: the stream differs from the whole answer")

        wanted = args.checked // args.processes
        checked = sorted(seen.texts)[:: max(1, len(seen.texts) // wanted)] if wanted else []
        for at in range(0, len(checked), clients):
            await asyncio.gather(*(again(seed) for seed in checked[at : at + clients]))
        seen.checked = len(checked)
    return seen


def load_part(address: str, name: str, pid: int | None, args: argparse.Namespace, part: int) -> Seen:
    """Run the clients of one process."""
    return asyncio.run(load(address, name, pid, args, part))


def loaded(address: str, name: str, pid: int | None, args: argparse.Namespace) -> Seen:
    """Run all clients."""
    seen = Seen()
    with ProcessPoolExecutor(args.processes) as pool:
        parts = [pool.submit(load_part, address, name, pid, args, part) for part in range(args.processes)]
        for part in parts:
            seen.add(part.result())
    return seen


def main() -> int:
    """Print what was seen; 1 when anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="whet/quickstart")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--tokens", type=int, default=64, help="most tokens of an answer")
    parser.add_argument("--checked", type=int, default=500, help="streams compared with whole answers")
    parser.add_argument("--processes", type=int, default=1, help="processes that the clients are split into")
    parser.add_argument("--url", help="a server that runs already, up to /v1; --model is then the model's name there")
    parser.add_argument("keys", nargs="*", help="keys of whet's config for the server, key=value")
    args = parser.parse_args()
    if args.url:
        seen = loaded(args.url, args.model, None, args)
    else:
        with server(args.model, *args.keys) as (address, name, pid):
            seen = loaded(address, name, pid, args)
    print(f"compared with whole answers: {seen.checked} of {len(seen.texts)}")
    print(f"{args.clients} clients, {args.seconds:g} s: {len(seen.whole)} answers, {seen.vanished} clients vanished")
    print(f"tokens a second: {seen.tokens / args.seconds:.0f}")
    if seen.first:
        print(f"seconds to the first token: median {statistics.median(seen.first):.3f}, worst {max(seen.first):.3f}")
    if half := len(seen.memory) // 2:
        early, late = (max(some) / 1e6 for some in (seen.memory[:half], seen.memory[half:]))
        print(f"memory in MB: {early:.0f} in the first half, {late:.0f} after")
    print(f"errors: {len(seen.errors)}", *sorted(set(seen.errors))[:5], sep="\n  ")
    return 1 if seen.errors or not seen.texts else 0


if __name__ == "__main__":
    sys.exit(main())
