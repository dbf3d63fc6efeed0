"""Mutated checkpoints: a run resumes with the right bits from a good one, or stops with a sentence; nothing is lost."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from fuzz.cases import cases

from whet.checkpoint.store import CheckpointStore
from whet.errors import UserError

STEPS = (2, 4, 6)
FILES = ("actor/huggingface/model.safetensors", "actor/optimizer.pt", "rng.pt", "manifest.json")
JUNK = (None, True, -1, 1e400, 10**30, "x", [], {}, [[[]]], {"a": 1}, "\ud800", "../..")


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with three checkpoints of the files that a run saves."""
    folder = tmp_path_factory.mktemp("pristine")
    store = CheckpointStore(folder)
    for step in STEPS:
        with store.writing(step, {"score": step / 10, "config": {}}) as side:
            for name in FILES[:-1]:
                (side / name).parent.mkdir(parents=True, exist_ok=True)
                (side / name).write_bytes(hashlib.sha256(f"{name}{step}".encode()).digest() * 40)
            with zipfile.ZipFile(side / "actor" / "optimizer.pt", "w") as archive:
                archive.writestr("data.pkl", f"{step}" * 500)
    return folder


def flip(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def cut(path: Path, rng: random.Random) -> None:
    os.truncate(path, rng.randrange(path.stat().st_size))


def append(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes() + rng.randbytes(rng.randrange(1, 50)))


def overwrite(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.choice([b"", b"{}", b"[]", b"null", b"[" * 100_000, b"\xff\xfe", rng.randbytes(500)]))


def remove(path: Path, rng: random.Random) -> None:
    path.unlink()


def make_folder(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()


def make_loop(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.symlink_to(path)


def make_pipe(path: Path, rng: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def rezip(path: Path, rng: random.Random) -> None:
    target = path if path.suffix == ".pt" else path.with_name("extra.zip")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.pkl", "x" * 500)


def rewrite(path: Path, rng: random.Random) -> None:
    """Change the manifest and make its checksum right again, as a program would."""
    manifest = next(up for up in path.parents if up.name.startswith("global_step_")) / "manifest.json"
    body = json.loads(manifest.read_text())
    change = rng.randrange(4)
    if change == 0:
        body[rng.choice(["format", "step", "serial", "run", "meta", "files"])] = rng.choice(JUNK)
    elif change == 1:
        del body[rng.choice(["format", "step", "serial", "meta", "files"])]
    elif change == 2:
        name = rng.choice(["../../etc/passwd", "/etc/passwd", "a\0b", "", "\ud800", "gone.bin"])
        body["files"][name] = rng.choice([{"size": 1, "sha256": "0"}, None, 3, {"size": -1}])
    else:
        body["files"][rng.choice(list(body["files"]))] = rng.choice(JUNK)
    body.pop("checksum")
    body["checksum"] = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    manifest.write_text(json.dumps(body))


def other_format(path: Path, rng: random.Random) -> None:
    manifest = next(up for up in path.parents if up.name.startswith("global_step_")) / "manifest.json"
    number = rng.choice(["0", "2", "99", '"2"', "1.5", "-1"])
    manifest.write_text(manifest.read_text().replace('"format": 1', f'"format": {number}'))


def add_file(path: Path, rng: random.Random) -> None:
    checkpoint = next(up for up in path.parents if up.name.startswith("global_step_"))
    name = rng.choice(
        ["carried.json", "actor/huggingface/adapter_config.json", "README.md", ".DS_Store", "critic/x.pt"]
    )
    (checkpoint / name).parent.mkdir(exist_ok=True)
    (checkpoint / name).write_bytes(b"{}")


MUTATIONS: tuple[Callable[[Path, random.Random], None], ...] = (
    flip, cut, append, overwrite, remove, make_folder, make_loop, make_pipe, rezip, rewrite, other_format, add_file,
)  # fmt: skip


def mutate_folder(run: Path, step: int, rng: random.Random) -> None:
    """Change a checkpoint's folder as a whole."""
    path = run / f"global_step_{step}"
    act = rng.randrange(5)
    if act == 0:
        path.rename(run / f"global_step_{rng.choice(['00', '9' * 200, '1'])}{step}")
    elif act == 1:
        path.rename(run.parent / f"{run.name}-{step}")
        path.symlink_to(run.parent / f"{run.name}-{step}")
    elif act == 2:
        path.rename(run.parent / f"{run.name}-{step}")
        path.symlink_to(run.parent / "nowhere")
    elif act == 3:
        shutil.copytree(path, run / f".global_step_{step}.was-0a")
    else:
        shutil.copytree(path, run / f"global_step_8{step}")


def snapshot(run: Path) -> dict[str, str]:
    """Every file of every checkpoint by its content, wherever it is now."""
    found = {}
    for path in [*run.rglob("*"), *run.parent.glob(f"{run.name}-*/**/*")]:
        if path.is_file() and not path.is_symlink():
            found[f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}"] = str(path)
    return found


def assert_intact(checkpoint: Path, step: int) -> None:
    for name in ("actor/huggingface/model.safetensors", "rng.pt"):
        assert (checkpoint / name).read_bytes() == hashlib.sha256(f"{name}{step}".encode()).digest() * 40


@pytest.mark.parametrize("seed", range(cases(40, 400)))
def test_mutated_checkpoints(pristine, tmp_path, seed):
    rng = random.Random(seed)
    run = tmp_path / "run"
    shutil.copytree(pristine, run)
    hit = rng.sample(STEPS, rng.randint(1, 3))
    for step in hit:
        if rng.random() < 0.15:
            mutate_folder(run, step, rng)
        else:
            rng.choice(MUTATIONS)(run / f"global_step_{step}" / rng.choice(FILES), rng)
    before, said, refusal, found = snapshot(run), [], None, None
    try:
        store = CheckpointStore(run, save_limit=1, keep_best=False, warn=said.append)
        found = store.last()
    except UserError as error:
        refusal = str(error)
    if refusal is not None:
        assert str(run) in refusal
        assert set(before) <= set(snapshot(run)), "a run that was refused changes nothing"
        return
    assert found is not None, "never starts over beside checkpoints"
    assert_intact(found.path, found.step)
    newer = [step for step in STEPS if step > found.step]
    assert all(any(f"global_step_{step} " in report for report in said) or step in hit for step in newer)
    assert set(before) <= set(snapshot(run)), "nothing is deleted before a newer one stands"
    store.continue_from(found)
    with store.writing(found.step + 1, {}) as side:
        (side / "model.bin").write_bytes(b"new")
    latest = CheckpointStore(run).last()
    assert latest is not None
    assert (latest.path / "model.bin").read_bytes() == b"new"
