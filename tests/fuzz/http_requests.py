"""Malformed HTTP requests: bytes of valid ones changed at random, known abuses of headers, and hostile JSON."""

from __future__ import annotations

import json
import random
from typing import Any

CHAT, COMPLETIONS, WEIGHTS = "/v1/chat/completions", "/v1/completions", "/v1/weights"
PATHS = (CHAT, COMPLETIONS, WEIGHTS, "/v1/models", "/health", "/metrics", "/openapi.json")
ODD_PATHS = (
    "/%00",
    "/v1/../v1/models",
    "/v1/models/%2e%2e%2f%2e%2e",
    "//v1//models",
    "*",
    "http://evil.example/v1/models",
)
ODD_PATHS += (
    "/v1/models/" + "a" * 5000,
    "/v1/models/%ff%fe",
    "/v1/models?" + "x=1&" * 2000,
    "/\x7f",
    "/v1/completions/",
)
METHODS = ("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "CONNECT", "PATCH", "BREW", "get", "PRI")
HEADERS = (
    "Content-Length: -1",
    "Content-Length: " + "9" * 5000,
    "Content-Length: 5\r\nContent-Length: 6",
    "Content-Length: 0x10",
    "Content-Length: 99999999999",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip",
    "Transfer-Encoding: chunked\r\nContent-Length: 4",
    "Expect: 100-continue",
    "Expect: something else",
    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAA",
    "Host: evil.example",
    "Origin: http://evil.example",
    "Origin: null",
    "Authorization: Bearer wrong",
    "Authorization: " + "B" * 30000,
    "Cookie: " + "a=b; " * 20000,
    "\r\n".join(f"X-{number}: y" for number in range(3000)),
    "X: \x00",
    "X\x00: y",
    " folded: y",
    ": empty",
    "X: \xff\xfe",
    "Content-Encoding: gzip",
    "Content-Type: multipart/form-data; boundary=" + "-" * 3000,
    "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: \x01",
    "Connection: close, keep-alive, \x01",
)
BYTES = (
    b"\r\n",
    b"\n",
    b"\0",
    b"\r\n\r\n",
    b"0\r\n\r\n",
    b"ffffffffffffffff\r\n",
    b"\xff" * 9,
    b"{",
    b"]",
    b'"',
    b"\\u",
)
BYTES += (b"HTTP/9.9", b"HTTP/1.0", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"-", b"%")
NUMBERS: tuple[Any, ...] = (0, -1, 1, 2, 1e308, -0.5, 2**31, 2**63, -(2**63) - 1, 10**400, 1e-320, True)
TEXTS: tuple[Any, ...] = (
    "",
    "a",
    "\0",
    "\ud800",
    "\U0010ffff",
    "é" * 300,
    "<|im_end|>",
    "{{ 7*7 }}",
    "<tool_call>",
    "x" * 70000,
)
RAW = (
    "NaN",
    "Infinity",
    "-Infinity",
    "9" * 5000,
    "1e999",
    "[" * 5000,
    '{"a":' * 5000,
    '"\\ud800"',
    '"\\u0000"',
    "01",
    "'a'",
    "",
)
FIELDS = (
    "model messages prompt n best_of max_tokens max_completion_tokens temperature top_p top_k min_p seed stop logprobs"
)
FIELDS += (
    " top_logprobs stream stream_options stop_token_ids logit_bias tools tool_choice user metadata response_format echo"
)
FIELDS += " suffix ignore_eos return_token_ids path version in_flight grammar \0 __proto__"


def honest_body(rng: random.Random, path: str, model: str) -> dict[str, Any]:
    """A body that the path accepts."""
    if path == WEIGHTS:
        return {"path": rng.choice(["/nowhere", "/", "\0", "~nobody/x", "../..", "x" * 5000])}
    common = {"model": model, "max_tokens": rng.randint(1, 4), "stream": rng.random() < 0.3}
    if path == CHAT:
        return common | {"messages": [{"role": "user", "content": "the answer"}]}
    return common | {"prompt": rng.choice(["the answer", [9, 40], ["a", "b"], [[5], [6, 7]]])}


def value(rng: random.Random, depth: int = 0) -> Any:
    """Any JSON value, often a nasty one."""
    kind = rng.randrange(8)
    if kind < 3 or depth > 4:
        return rng.choice(NUMBERS)
    if kind < 5:
        return rng.choice(TEXTS)
    if kind == 5:
        return None
    if kind == 6:
        return [value(rng, depth + 1) for _ in range(rng.choice([0, 1, 3, 40]))]
    return {str(rng.choice(TEXTS))[:20] + str(n): value(rng, depth + 1) for n in range(rng.choice([0, 1, 5]))}


def hostile_json(rng: random.Random, body: dict[str, Any]) -> bytes:
    """A body with some of its fields replaced, doubled, or written as what is no JSON."""
    for name in rng.sample(FIELDS.split(" "), rng.randint(1, 3)):
        body[name] = value(rng)
    if rng.random() < 0.3 and isinstance(body.get("messages"), list) and body["messages"]:
        turn = {
            "role": rng.choice(["user", "tool", "robot"]),
            "content": value(rng),
            rng.choice(["name", "x"]): value(rng),
        }
        body["messages"] = [turn] * rng.choice([1, 700])
    text = json.dumps(body)
    if rng.random() < 0.3:
        text = text[:-1] + f', "{rng.choice(FIELDS.split(" "))}": {rng.choice(RAW)}}}'
    if rng.random() < 0.1:
        text = text[:-1] + ", " + text[1:]
    return text.encode("utf-8", "surrogatepass")


def changed(rng: random.Random, data: bytes) -> bytes:
    """Bytes with some flipped, cut out, doubled or put in."""
    for _ in range(rng.choice([1, 1, 2, 5])):
        at, length = rng.randrange(len(data) + 1), rng.randrange(1, 30)
        kind = rng.randrange(5)
        if kind == 0:
            data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
        elif kind == 1:
            data = data[:at] + data[at + length :]
        elif kind == 2:
            data = data[:at] + data[at : at + length] * rng.randrange(2, 50) + data[at + length :]
        elif kind == 3:
            data = data[:at] + rng.choice(BYTES) + data[at:]
        else:
            data = data[:at] or b"\0"
    return data


def chunked(rng: random.Random, body: bytes) -> bytes:
    """A body in chunks, some with sizes that are not theirs, often without an end."""
    parts = [body[at : at + 40] for at in range(0, len(body), 40)]
    sizes = [b"%x" % rng.choice([len(part)] * 9 + [len(part) + 5, 0, 2**70]) for part in parts]
    joined = b"".join(
        size + rng.choice([b"", b";x=" + b"y" * 50]) + b"\r\n" + p + b"\r\n" for size, p in zip(sizes, parts)
    )
    return joined + rng.choice([b"0\r\n\r\n", b"", b"0\r\nX: y\r\n\r\n"])


def malformed(rng: random.Random, model: str, token: str) -> bytes:
    """One connection's worth of bytes."""
    path = rng.choice(PATHS)
    body = json.dumps(honest_body(rng, path, model)).encode() if path in (CHAT, COMPLETIONS, WEIGHTS) else b""
    method = "POST" if body else "GET"
    if body and rng.random() < 0.5:
        body = hostile_json(rng, honest_body(rng, path, model))
    if rng.random() < 0.15:
        method = rng.choice(METHODS)
    if rng.random() < 0.15:
        path = rng.choice(ODD_PATHS)
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}"]
    in_chunks = bool(body) and rng.random() < 0.2
    if in_chunks:
        body = chunked(rng, body)
        lines.append("Transfer-Encoding: chunked")
    elif body:
        lines.append(f"Content-Length: {len(body) + rng.choice([0] * 8 + [-1, 7])}")
    if rng.random() < 0.3:
        lines.insert(rng.randint(1, len(lines)), rng.choice(HEADERS))
    data = "\r\n".join([*lines, "", ""]).encode("latin-1") + body
    if rng.random() < 0.35:
        data = changed(rng, data)
    return data * rng.choice([1] * 12 + [2, 20])
