"""Mutated inputs of `whet merge`: every one is refused with a sentence, or merged to exactly what it holds."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from fuzz.cases import cases
from merge.conftest import describe, small_llama
from merge.hostile import SHARD, one_rank
from merge.test_merge_shards import weights
from tiny_models import tiny_tokenizer

from whet.checkpoint.manifest import write_manifest
from whet.cli import main
from whet.config.schema.model import LoraConfig
from whet.model.lora import add_adapters, save_adapters

VALUES: list[Any] = [
    None, True, -1, 0, 3, 10**6, 10**12, 10**30, 1.5, float("nan"), float("inf"), "", "x", "../x", "/etc/passwd", "a/b",
    "\0", "\ud800", [], [1], ["../x"], [[]] * 1000, {}, {"a": {"b": "/etc"}}, {"": None},
]  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz") / "model"
    small_llama().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@contextmanager
def no_hang(what: str) -> Iterator[None]:
    """At most 5 s of processor time, and a minute of waiting."""

    def late(*_: object) -> None:
        raise TimeoutError(f"{what} hangs")

    before, began = signal.signal(signal.SIGALRM, late), time.process_time()
    signal.alarm(60)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert time.process_time() - began < 5, what


def merge(what: str, capsys: pytest.CaptureFixture[str], *arguments: object) -> bool:
    """Whether a merge succeeds; it may fail by a sentence alone."""
    with no_hang(what):
        code = main(["merge", *map(str, arguments)])
    shown = capsys.readouterr().err
    assert code in (0, 2), what
    assert "Traceback" not in shown, what
    assert code == 0 or "whet: " in shown, what
    return code == 0


def same(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> bool:
    return all(name in theirs and torch.equal(tensor, theirs[name]) for name, tensor in ours.items()) and bool(ours)


# ── archives ──


def held(file: Path, first: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What torch itself reads; the first weights where it stumbles over an entry that has nothing to do with them."""
    try:
        return torch.load(file, weights_only=True)
    except Exception:
        return first


def flipped(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 5])):
        if changed:
            at = chance.randrange(len(changed))
            kind = chance.randrange(4)
            if kind == 0:
                changed[at] ^= 1 << chance.randrange(8)
            elif kind == 1:
                changed[at] = chance.randrange(256)
            elif kind == 2:
                del changed[at : at + chance.randrange(1, 9)]
            else:
                changed[at:at] = chance.randbytes(chance.randrange(1, 9))
    return bytes(changed)


def mutate_file(file: Path, chance: random.Random) -> None:
    data = file.read_bytes()
    kind = chance.randrange(3)
    if kind == 0:
        file.write_bytes(data[: chance.randrange(len(data))])
    elif kind == 1:
        file.write_bytes(flipped(data, chance))
    else:  # the directory at the end, where sizes and places are
        file.write_bytes(data[:-700] + flipped(data[-700:], chance))


def mutate_entries(file: Path, chance: random.Random) -> None:
    """Entries changed, dropped, renamed or doubled in an archive whose checksums are right."""
    with zipfile.ZipFile(file) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    at = 0 if chance.random() < 0.6 else chance.randrange(len(members))  # the first one is the pickle
    name, data = members[at]
    kind = chance.choice(["flip", "flip", "flip", "drop", "rename", "double", "compress", "number"])
    if kind == "flip":
        members[at] = (name, flipped(data, chance))
    elif kind == "drop":
        del members[at]
    elif kind == "rename":
        members[at] = (chance.choice(["a/data/0", "/etc/passwd", "../x", "data.pkl", "a/b/data.pkl", ""]), data)
    elif kind == "double":
        members.insert(chance.randrange(len(members)), (name, flipped(data, chance)))
    elif kind == "number":  # small numbers of the pickle: sizes, offsets, strides, counts
        pickled = bytearray(members[0][1])
        places = [i for i in range(len(pickled) - 1) if pickled[i : i + 1] == b"K"]
        pickled[chance.choice(places) + 1] = chance.choice([0, 1, 2, 19, 20, 21, 255])
        members[0] = (members[0][0], bytes(pickled))
    packing = zipfile.ZIP_DEFLATED if kind == "compress" else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", packing) as archive:
        for name, data in members:
            archive.writestr(name or "x", data)


@pytest.mark.parametrize("mutate", [mutate_file, mutate_entries])
@pytest.mark.filterwarnings("ignore")
def test_archives(model: Path, tmp_path: Path, capsys: Any, mutate: Callable[[Path, random.Random], None]) -> None:
    actor = one_rank(model, tmp_path / "actor")
    first = (actor / SHARD).read_bytes()
    for seed in range(cases(8, 70)):
        (actor / SHARD).write_bytes(first)
        mutate(actor / SHARD, random.Random(seed))
        out, what = tmp_path / f"out{seed}", f"{mutate.__name__} {seed}"
        if merge(what, capsys, "--local_dir", actor, "--target_dir", out):
            assert same(weights(out), held(actor / SHARD, weights(model))), what
            shutil.rmtree(out)
        assert not out.exists(), what


# ── descriptions ──


def mutate_json(file: Path, chance: random.Random) -> None:
    text = file.read_text()
    if chance.random() < 0.25:
        file.write_bytes(flipped(text.encode(), chance))
        return
    if chance.random() < 0.1:
        depth = 10 ** chance.randrange(2, 6)
        file.write_text('{"a":' * depth + "1" + "}" * depth)
        return
    content = json.loads(text)
    for _ in range(chance.choice([1, 1, 3])):
        extra = [
            "auto_map",
            "_name_or_path",
            "transformers_weights",
            "attn_implementation",
            "vocab_file",
            "quantization_config",
        ]
        content[chance.choice([*content, *extra])] = chance.choice(VALUES)
    file.write_text(json.dumps(content))


def mutate_place(file: Path, chance: random.Random) -> None:
    """Something else in place of a file."""
    file.unlink()
    kind = chance.randrange(6)
    if kind == 0:
        file.mkdir()
    elif kind == 1:
        file.symlink_to("/etc/passwd")
    elif kind == 2:
        file.symlink_to(file.name)  # to itself
    elif kind == 3:
        os.mkfifo(file)
    elif kind == 4:
        file.write_bytes(chance.randbytes(200))


def test_descriptions(model: Path, tmp_path: Path, capsys: Any) -> None:
    for seed in range(cases(10, 130)):
        chance = random.Random(seed)
        actor = one_rank(model, tmp_path / f"actor{seed}")
        file = chance.choice(sorted((actor / "huggingface").iterdir()))
        mutate = mutate_place if chance.random() < 0.2 else mutate_json
        mutate(file, chance)
        out, what = tmp_path / f"out{seed}", f"{mutate.__name__} {file.name} {seed}"
        if merge(what, capsys, "--local_dir", actor, "--target_dir", out):
            assert same(weights(out), weights(model)), what
            assert "root:" not in "".join(path.read_text(errors="ignore") for path in out.iterdir()), what
        else:
            assert not out.exists(), what
        shutil.rmtree(actor)


def test_names_of_ranks(model: Path, tmp_path: Path, capsys: Any) -> None:
    numbers = ["0", "1", "2", "00", "01", "7", "99999999999", "9" * 100, "-1", "٣", "1e3", ""]
    state = weights(model)
    for seed in range(cases(5, 40)):
        chance = random.Random(seed)
        actor = tmp_path / f"actor{seed}"
        actor.mkdir()
        describe(model, actor)
        for _ in range(chance.randrange(1, 4)):
            name = f"model_world_size_{chance.choice(numbers)}_rank_{chance.choice(numbers)}.pt"
            torch.save(state, actor / name)
        out = tmp_path / f"out{seed}"
        if merge(f"names {seed}", capsys, "--local_dir", actor, "--target_dir", out):
            assert same(weights(out), state)


# ── checkpoints of whet ──


def mutate_checkpoint(step: Path, chance: random.Random) -> None:
    """Change one file and write a manifest that fits it, as a stranger would; sometimes one that does not."""
    files = sorted(path for path in step.rglob("*") if path.is_file())
    file = chance.choice(files)
    if file.suffix == ".json" and chance.random() < 0.7:
        mutate_json(file, chance)
    elif chance.random() < 0.2:
        mutate_place(file, chance)
    else:
        file.write_bytes(flipped(file.read_bytes(), chance))
    chosen: dict[str, Any] = {"trust_remote_code": chance.choice(VALUES), "override_config": {}}
    if chance.random() < 0.3:
        chosen[chance.choice([*chosen, "lora"])] = chance.choice(VALUES)
    if chance.random() < 0.9:
        meta = {"config": {"worker": {"actor": {"model": chosen}}}}
        write_manifest(step, chance.choice([1, 10**30]), 1, json.loads(json.dumps(meta)))
    else:
        (step / "manifest.json").write_bytes(chance.randbytes(50))


@pytest.mark.parametrize("kind", ["whole", "adapters"])
def test_checkpoints(model: Path, tmp_path: Path, capsys: Any, kind: str) -> None:
    first = tmp_path / "first" / "actor" / ("huggingface" if kind == "whole" else "lora_adapter")
    if kind == "whole":
        shutil.copytree(model, first)
    else:
        first.mkdir(parents=True)
        adapted = small_llama()
        add_adapters(adapted, LoraConfig(rank=2), str(model), seed=1)
        save_adapters(adapted, first)
        tiny_tokenizer().save_pretrained(first)
    for seed in range(cases(5, 60)):
        chance = random.Random(seed)
        step, out = tmp_path / f"run{seed}" / "global_step_1", tmp_path / f"out{seed}"
        shutil.copytree(tmp_path / "first", step)
        mutate_checkpoint(step, chance)
        base = [] if kind == "whole" else [model]
        dtype = ["--dtype", "float32"] if kind == "whole" and chance.random() < 0.5 else []
        if merge(f"{kind} {seed}", capsys, step, out, *base, *dtype):
            source = weights(step / "actor" / "huggingface") if kind == "whole" else weights(model)
            assert weights(out).keys() == source.keys()
            assert kind != "whole" or same({n: t.to(source[n].dtype) for n, t in weights(out).items()}, source)
        else:
            assert not out.exists()
        shutil.rmtree(step)
