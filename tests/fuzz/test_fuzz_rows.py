"""Malformed rows and templates end in a `UserError` that names the row, or become prompts."""

from __future__ import annotations

import csv
import io
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from data.conftest import CHAT, build_tokenizer
from fuzz.cases import cases
from fuzz.watched import message_of

from whet.config.schema.data import DataConfig
from whet.config.schema.jobs import SftConfig
from whet.data.dataset import PromptDataset
from whet.data.demonstrations import DemonstrationDataset

TEXTS = (
    "", " ", "\0", "a\0b", "\ud800", "a\udfffb", "\ufeff", "\u202e", "😀" * 50, "x" * 300_000, "\r\n", "<image>",
    "{{ x }}",
    "{% for %}", "null", "[", "[]", '[{"role": "user"}]', "NaN", "\x1b[31m", "\x7f",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 2**63 - 1, 2**63, 2**64, -(10**40), 10**4000, 0.5, float("nan"), float("inf"), [], {}, [[]],
    [None],
    [{}], [{"role": "user"}], [{"role": 1, "content": 2}], [{"role": "user", "content": None}], [{"content": "x"}],
    ["x"],
    [{"role": "assistant", "content": "x"}], [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
    [{"role": "user", "content": [{"type": "image"}]}], [{"role": "user", "content": [{"type": "text"}]}],
    {"role": "user"},
    [{"role": "user", "content": "x", "tool_calls": 3}, {"role": "assistant", "content": "y",
    "tool_calls": [{"a": 1}]}],
    [{"role": "user", "content": "x"}, {"role": "assistant", "content": {"a": {"b": [1]}}}], {"ground_truth": None},
    [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}] * 30, [{"role": "x" * 9999,
    "content": "x"}],
)  # fmt: skip
LINES = (
    b"", b"\n\n\n", b"{", b"[]", b"3", b"null", b'"x"', b'{"prompt": "x", "answer": "y"} trailing', b"\xff\xfe",
    b"\x00",
    b"[" * 100_000, b'{"a":' * 5_000, b'{"prompt": ' + b"9" * 5000 + b"}", b'{"prompt": NaN, "answer": Infinity}',
    b"{'a': 1}",
    b'{"prompt": "x", "prompt": "z", "answer": 1}', b'{"prompt": "\\ud800", "answer": 1}',
    b'{"prompt": "x", "answer": "\\u0000"}',
    b'{"prompt": "x", "answer": 1}\r', b'\xef\xbb\xbf{"prompt": "x", "answer": 1}', b'{"prompt": "\xff", "answer": 1}',
    b'{"\\ud800": 1, "prompt": "x", "answer": 1}', b'{"prompt": "x", "answer": ' + b"[" * 300 + b"]" * 300 + b"}",
    b",", b'""',
)  # fmt: skip
TEMPLATES = (
    "{{ content }}", "{{ nothing }}", "{{ content.__class__ }}", "{% include 'x' %}", "{{ 1 / 0 }}", "{% for %}",
    "{{ x",
    "{% for i in range(10**9) %}{% endfor %}", "{{ 'a' * 10**12 }}", "{{ 10**10**9 }}", "{{ '%9999999999d' % 1 }}", "",
    "{{ 'x'.ljust(10**12) }}", "{{ 'x'|center(10**12) }}", "{{ '{:9999999999}'.format(1) }}", "{{ '\\ud800' }}", " ",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{{ " + "(" * 3000 + " }}", "{{ answer }}",
    "{{ content|nothing }}",
    "{{ '%9999999999d'|format(1) }}", "{{ " + "9" * 5000 + " }}", "{% if 1 %}" * 200 + "{% endif %}" * 200,
)  # fmt: skip
ENDLESS = "{% set r = range(99999) %}{% for i in r %}{% for j in r %}{{ j }}{% endfor %}{% endfor %}"
SILENT = "{% set r = range(99999) %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}"


def row(rng: random.Random) -> dict[str, Any]:
    made: dict[str, Any] = {"prompt": "what is one", "answer": "two", "messages": None}
    for name in rng.sample(
        ["prompt", "answer", "images", "messages", "response", "tools", "extra"], rng.randrange(1, 4)
    ):
        made[name] = rng.choice(rng.choice((TEXTS, VALUES)))
    if rng.random() < 0.1:
        del made[rng.choice(list(made))]
    return made


def content(rng: random.Random, suffix: str) -> bytes:
    rows = [row(rng) for _ in range(rng.choice((1, 1, 3)))]
    if suffix == ".csv":
        file = io.StringIO()
        writer = csv.writer(file, quoting=rng.choice((csv.QUOTE_ALL, csv.QUOTE_MINIMAL)))
        writer.writerow(["prompt", "answer", *rng.choice(([], ["prompt"], ["", "x"], ["x" * 500]))])
        writer.writerows(
            [_plain(each.get("prompt")), _plain(each.get("answer")), "z"][: rng.choice((2, 2, 3))] for each in rows
        )
        data = file.getvalue().encode("utf-8", "replace")
        return data.replace(b'"', rng.choice((b'"', b"", b'""')), rng.choice((0, 1)))
    lines = [_dumped(each).encode() for each in rows]
    if rng.random() < 0.4:
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(LINES))
    if suffix == ".json" and rng.random() < 0.7:
        return b"[" + b",".join(lines) + b"]"
    return rng.choice((b"\n", b"\r\n")).join(lines)


def _dumped(value: Any) -> str:
    return json.dumps(value, default=str) if len(str(value.get("answer", ""))[:5000]) < 4999 else "{}"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else type(value).__name__


@pytest.fixture(scope="module")
def tokenizers() -> list[Any]:
    made = [build_tokenizer(None), build_tokenizer(CHAT)]
    for tokenizer in made:
        tokenizer.eos_token = "|"
    return made


def read(path: Path, tokenizer: Any, sft: bool) -> None:
    config = DataConfig(max_prompt_length=1000)
    if sft:
        made = DemonstrationDataset(str(path), config, SftConfig(), tokenizer, frozenset({0}))
        made.take(range(len(made)))
    else:
        for prompt in PromptDataset(str(path), config, tokenizer):
            prompt.text.encode("utf-8")


def test_malformed_rows_are_refused_or_read(tokenizers, tmp_path: Path):
    refused = 0
    for seed in range(cases(100, 500)):
        rng = random.Random(seed)
        suffix = rng.choice((".jsonl", ".jsonl", ".json", ".csv"))
        path = tmp_path / f"train{suffix}"
        path.write_bytes(content(rng, suffix))
        tokenizer, sft = rng.choice(tokenizers), rng.random() < 0.4
        try:
            message = message_of(lambda p=path, t=tokenizer, s=sft: read(p, t, s))
        except BaseException as error:
            error.add_note(f"seed {seed}: {path.read_bytes()[:400]!r}")
            raise
        refused += message is not None
        assert message is None or "train" in message or "data." in message or "sft." in message, (seed, message)
    assert refused > cases(100, 500) / 4


@pytest.mark.parametrize("line", LINES, ids=lambda line: repr(line[:24]))
def test_malformed_lines_are_refused_or_read(line: bytes, tokenizers, tmp_path: Path):
    (tmp_path / "train.jsonl").write_bytes(b'{"prompt": "x", "answer": 1}\n' + line + b"\n")
    message_of(lambda: read(tmp_path / "train.jsonl", tokenizers[0], False))


@pytest.mark.parametrize("text", TEMPLATES, ids=lambda text: text[:30])
@pytest.mark.parametrize("key", ["format_prompt", "override_chat_template"])
def test_templates_end(key: str, text: str, tokenizers, tmp_path: Path):
    _render(key, text, tokenizers, tmp_path)


@pytest.mark.parametrize("text", [SILENT, ENDLESS][: cases(1, 2)], ids=["silent", "endless"][: cases(1, 2)])
@pytest.mark.parametrize("key", ["format_prompt", "override_chat_template"])
def test_an_endless_template_is_named(key: str, text: str, tokenizers, tmp_path: Path):
    message = _render(key, text, tokenizers, tmp_path) or ""
    assert "takes longer than" in message or "writes more than" in message


def _render(key: str, text: str, tokenizers: list[Any], folder: Path) -> str | None:
    (folder / "template.jinja").write_text(text)
    (folder / "train.jsonl").write_text('{"prompt": "what is one", "answer": "two"}\n')
    config = DataConfig(**{key: str(folder / "template.jinja")})
    return message_of(lambda: list(PromptDataset(str(folder / "train.jsonl"), config, tokenizers[1])))


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".csv", ""])
def test_pipes_and_devices_are_not_read(suffix: str, tokenizers, tmp_path: Path):
    os.mkfifo(tmp_path / f"pipe{suffix}")
    (tmp_path / f"zero{suffix}").symlink_to("/dev/zero")
    for name in ("pipe", "zero"):
        path = tmp_path / f"{name}{suffix}"
        assert message_of(lambda path=path: read(path, tokenizers[0], False))


def test_many_files_and_a_home_that_is_nobodys(tokenizers, tmp_path: Path):
    (tmp_path / "a.jsonl").write_text('{"prompt": "what is one", "answer": "two"}\n')
    many = ",".join([str(tmp_path / "a.jsonl")] * 200)  # longer than any name of one file
    assert len(PromptDataset(many, DataConfig(), tokenizers[0])) == 200
    assert "~nobody-here" in (message_of(lambda: read(Path("~nobody-here/x.jsonl"), tokenizers[0], False)) or "")


def test_a_large_cell_is_read(tokenizers, tmp_path: Path):
    (tmp_path / "a.csv").write_text('prompt,answer\n"' + "one " * 50_000 + '",two\n')
    assert len(PromptDataset(str(tmp_path / "a.csv"), DataConfig(max_prompt_length=100_000), tokenizers[0])) == 1
