"""Malformed configs end in a `UserError` that names the mistake, for every job, and the command exits with 2."""

from __future__ import annotations

import copy
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from fuzz.cases import cases
from fuzz.watched import message_of

from whet.cli import examples_folder
from whet.config import load_config, summary_lines
from whet.config.describe import describe
from whet.config.jobs import JOBS, load_job
from whet.config.loading.aliases import ALIASES
from whet.config.schema import all_keys, all_sections

NUMBERS = (
    0, -1, 1, 2, 3, 7, 2**31 - 1, 2**31, 2**62, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30, 0.0, -0.0, 0.5, -0.5, 1e-300,
    5e-324, 1e300, float("nan"), float("inf"), float("-inf"), 3_000_000, 99_999_999_999, True, False, None,
)  # fmt: skip
TEXTS = (
    "", " ", "null", "~", "~nobody", "~nobody/x", "~/x", ".", "..", "/", "//", "../../x", "/etc/passwd", "a/../../b",
    "a" * 300, "a/" * 3000, "x" * 100_000, "x\ny", "x\ty", "\x1b[31mred", "\x7f", "\x00", "a\x00b", "\ud800",
    "\udcff.jsonl",

    "ä", "😀", "\u202e", "\ufeff", "9" * 5000, "0x" + "f" * 5000, "1e9999", "1e-9999", "-" * 50, "1_000",
    "٣", "1:30:30",
    "2024-99-99", "0000-00-00", "!!timestamp 2024-99-99", "!!int x", "!!float", "!!bool x", "!!null", "!!binary =",
    "!!set {a}", "!!omap [a: 1]", "!!python/object/apply:os.system [id]", "!x", "???", "${", "${}", "${x}", "${.x}",
    "${....x}", "${data.seed}", "${oc.env:NOT_SET_ANYWHERE}", "${oc.env:HOME}", "${oc.decode:'[1, 2'}", "${foo:1}",
    "${" * 60 + "x" + "}" * 60, "${data.${data.seed}}", "${oc.env:" + "[" * 500 + "]" * 500 + "}", "$", "\\${x}",
    "${data}", "${worker}", "${trainer.stages}", "[", "]", "{", "}", "[" * 3000, "[" * 60 + "]" * 60, "{a: " * 200,
    "*a",
    "&a [*a]", "%", "@", "`", "|", ">", "a: b: c", "'", '"', "- x", "-", ":", "? x", "{{ x }}", "{% for %}", "a,b,,c",
    ",", "@", "x@", "@train", "whet/", "whet/nothing", "whet/quickstart", "org/name", "org/name:conf@split", "a:b", ":",
    "x.py", "x.py:", ":f", "x.py:f.g", "http://", "http://[", "http://host:99999", "http://host:x", "ftp://x", "(", "*",
    "(a+)+$", "[q_proj", "/dev/zero", "/dev/null", "/proc/self/mem", "nan", "inf", "yes", "True", "none",
)  # fmt: skip
COLLECTIONS: tuple[Any, ...] = (
    [], {}, [[]], [{}], {"a": []}, [None], [1, "a"], ["a", None], {"": 1}, {"a.b": 1, "a": 2}, {"a": 1, "a.b": 2},
    {1: 2},
    {None: 1}, {"n": 0}, {"n": "x"}, {"temperature": -1}, {"\ud800": "\x00"}, [1.5], ["console", "nothing"],
    [2**70] * 2,
    [0.9, 2], [0.9], [0.1, 0.2, 0.3], ["x"] * 3000, {"a": {"b": {"c": {"d": [1, {"e": "${data.seed}"}]}}}},
    [{"steps": 1}], [{"steps": "x"}], [{"until": 3}], [{"until": {"metric": [], "above": 1}}], [{"overrides": []}],
    [{"steps": 1, "overrides": {"data.max_response_length": 0}}], [{"steps": 1, "overrides": {"data": {"seed": 1}}}],
    [{"steps": 10**30}], [{"steps": 1, "overrides": {"worker.rollout.val_override_config": {"n": {}}}}], {"files": {}},
    {"../x": {"files": "a"}}, {"x": 3}, {"model_type": "\ud800"},
)  # fmt: skip
BASES = ("quickstart.yaml", "sft/quickstart.yaml")
RAW = (
    b"", b"\xff\xfe\x00d", "data:\n  seed: 1\n".encode("utf-16"), b"\xef\xbb\xbfdata: {seed: 1}\n", b"\x00" * 100,
    b"\x80",
    b"[" * 100_000, b"{a: " * 20_000, b"- " * 20_000, b"a: &a\n" + b"  - *a\n" * 10, b"a: &a {b: *a}\n",
    b"? [a]\n: b\n",
    b"data:\n\tseed: 1\n", b"data: {seed: 1}\ndata: {seed: 2}\n", b"--- a\n--- b\n", b"data: 1\n", b"[1, 2]\n",
    b"text\n",
    b"x: " + b"9" * 200_000, b"a: !!python/name:os.system\n", b"%YAML 9.9\n---\na: 1\n", b"\xc2\x85",
    b"data:\r  seed: 1\r",
    b"a: &a [x, x, x, x, x, x, x, x, x, x]\n" + b"".join(b"b%d: &b%d [*a, *a, *a]\n" % (i, i) for i in range(300)),
    b"".join(b"k%d: &k%d [%s]\n" % (i, i, b", ".join([b"*k%d" % (i - 1)] * 10) if i else b"x") for i in range(30)),
    b"".join(b"k%d: &k%d {<<: [%s]}\n" % (i, i,
    b", ".join([b"*k%d" % (i - 1)] * 9) if i else b"{a: 1}") for i in range(30)),
    b"worker:\n  reward:\n    reward_function_kwargs:\n" + b"".join(
        b"      k%d: ${..reward_function_kwargs.k%d}${.k%d}\n" % (i, i + 1, i + 1) for i in range(40)
    ) + b"      k40: x\n",
    b"worker: {reward: {reward_function_kwargs: {a: '${.b}', b: '${.a}'}}}\n", b"extends: run.yaml\n",
    b"extends: [a]\n",
    b"extends: /dev/zero\n", b"extends: ~nobody/x.yaml\n", b'extends: "\\0"\n', b'data: {train_files: "\\ud800"}\n',
    b'"\\ud800": 1\n', b"data: {seed: 0x" + b"f" * 90 + b"}\n", b"data: {seed: !!timestamp 2024-99-99}\n",
    b"#" * 2_000_000,
)  # fmt: skip


def value(rng: random.Random) -> Any:
    return copy.deepcopy(rng.choice(rng.choice((NUMBERS, TEXTS, TEXTS, COLLECTIONS))))


def name(rng: random.Random) -> str:
    known = rng.choice((list(all_keys()), list(all_keys()), list(all_sections()), list(ALIASES)))
    return rng.choice(known) + rng.choice(("",) * 12 + (".x", ".", "..", "[0]", " "))


def argument(rng: random.Random) -> str:
    given = value(rng)
    text = given if isinstance(given, str) else yaml.safe_dump(given, default_flow_style=True, width=10**6).strip()
    return rng.choice(("{}={}",) * 12 + ("--{}={}", "{} = {}", "{}{}", "+{}={}")).format(name(rng), text)


def mutated_tree(rng: random.Random, tree: dict[str, Any]) -> str:
    """A config file in which some values were replaced, at keys or at whole sections."""
    for _ in range(rng.choice((1, 1, 2, 5))):
        *above, leaf = name(rng).split(".")
        branch: Any = tree
        for part in above:
            below = branch.setdefault(part, {})
            branch = below if isinstance(below, dict) else branch
        branch[leaf] = value(rng)
    return yaml.safe_dump(tree, allow_unicode=rng.random() < 0.5)


def mutated_bytes(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 3, 20))):
        at = rng.randrange(len(changed))
        match rng.randrange(5):
            case 0:
                changed[at] = rng.randrange(256)
            case 1:
                del changed[at : at + rng.randrange(1, 30)]
            case 2:
                changed[at:at] = rng.choice(
                    (b"\t", b":", b"- ", b"[", b"{", b"}", b"&a ", b"*a", b"!", b"\n", b"'", b"${")
                )
            case 3:
                other = rng.randrange(len(changed))
                changed[at:at] = changed[other : other + rng.randrange(1, 60)]
            case 4:
                changed[at:at] = rng.choice(TEXTS).encode("utf-8", "replace")
    return bytes(changed)


def arguments(rng: random.Random, folder: Path) -> list[str]:
    """A command line, with the config file it names."""
    base = (examples_folder() / rng.choice(BASES)).read_bytes()
    file = folder / "run.yaml"
    kind = rng.randrange(10)
    if kind < 4:
        file.write_bytes(base)
        return [f"config={file}", *(argument(rng) for _ in range(rng.choice((1, 1, 1, 2, 4))))]
    if kind < 7:
        text = mutated_tree(rng, yaml.safe_load(base))
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
    elif kind < 9:
        file.write_bytes(mutated_bytes(rng, base))
    else:
        file.write_bytes(rng.choice(RAW))
    return [f"config={file}"]


def start(job: str, argv: list[str]) -> None:
    config = load_job(job, argv, examples_folder())
    describe(config)
    summary_lines(config, job)
    config.to_yaml().encode("utf-8")


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """A folder with what the examples name, so that a config that was not damaged passes."""
    for item in examples_folder().iterdir():
        if item.is_dir():
            (tmp_path / item.name).symlink_to(item)
    return tmp_path


def test_malformed_configs_are_refused_or_work(beside: Path):
    refused = 0
    for seed in range(cases(60, 2000)):
        rng = random.Random(seed)
        argv = arguments(rng, beside)
        job = rng.choice(list(JOBS))
        try:
            refused += message_of(lambda job=job, argv=argv: start(job, argv)) is not None
        except BaseException as error:
            error.add_note(f"seed {seed}: {job} {[each[:300] for each in argv]}")
            raise
    assert refused > cases(60, 2000) / 3


@pytest.mark.parametrize("raw", RAW, ids=lambda raw: repr(raw[:20]))
def test_malformed_files_are_refused_or_work(raw: bytes, tmp_path: Path):
    (tmp_path / "run.yaml").write_bytes(raw)
    message_of(lambda: load_config([f"config={tmp_path}/run.yaml"]))


@pytest.mark.parametrize("kind", ["folder", "fifo", "zero", "secret", "socket", "loop"])
def test_things_that_are_no_files(kind: str, tmp_path: Path):
    path = tmp_path / "run.yaml"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path)
    else:
        path = Path({"zero": "/dev/zero", "secret": "/proc/self/mem", "socket": "/dev/null"}[kind])
    for key in ("config", "data.train_files", "data.format_prompt", "worker.actor.model.model_path", "eval.responses"):
        argv = [f"{key}={path}"]
        message_of(lambda argv=argv: start("eval", argv))


def test_the_command_says_it_and_exits_with_2(beside: Path):
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    wanted = cases(2, 40)
    seed = 0
    while wanted:
        rng = random.Random(10_000 + seed)
        seed += 1
        argv = arguments(rng, beside)
        job = rng.choice(list(JOBS))
        if any("\0" in each or each.startswith("-") for each in argv) or len(str(argv)) > 90_000:
            continue
        if message_of(lambda job=job, argv=argv: start(job, argv)) is None:
            continue  # it would start to work
        wanted -= 1
        command = [sys.executable, "-m", "whet.cli", job, *(os.fsencode(_escaped(each)) for each in argv)]
        done = subprocess.run(command, env=environment, capture_output=True, timeout=180, cwd=beside)
        assert done.returncode == 2, (seed, argv, done.stderr[-2000:])
        assert done.stderr.startswith(b"whet: "), (seed, argv, done.stderr[-2000:])
        assert b"Traceback" not in done.stderr


def _escaped(text: str) -> str:
    """What bytes that are no UTF-8 look like in an argument."""
    return text.replace("\ud800", "\udcff")
