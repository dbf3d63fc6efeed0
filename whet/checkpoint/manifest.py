"""Manifests of checkpoints: step, order of writing and metadata, and every file with its size and checksum."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from whet.checkpoint.durable import fsync_file, fsync_folder, write_text
from whet.errors import UserError

MANIFEST = "manifest.json"
STEP = re.compile(r"global_step_([0-9]+)")
FORMAT = 1
MOST_BYTES = 64_000_000  # of a manifest: one that whet wrote has some kilobytes
MOST_STEPS = 2**53


class UnusableError(Exception):
    """A checkpoint cannot be used; the message is the reason."""

    word = "cannot be used"


class DamagedError(UnusableError):
    """The contents are not those that were saved."""

    word = "is damaged"


class OtherFormatError(UnusableError):
    """The manifest has a format of another version of whet; the contents may be fine."""

    word = "has another format"


class UnreadableError(UnusableError):
    """The system does not let this process read it (permissions, I/O errors, missing disks); it may be fine."""

    word = "cannot be read"


class AddedFilesError(UnusableError):
    """Files were added that a loader would read; the checkpoint is fine without them."""

    word = "was changed"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint that stands: its folder and the metadata saved with it."""

    path: Path
    step: int
    meta: dict[str, Any]
    serial: int  # the order of writing within the run folder
    run: str | None = None  # identifies the run that wrote it; None in manifests of earlier versions


def write_manifest(folder: Path, step: int, serial: int, meta: dict[str, Any], run: str | None = None) -> None:
    """Make every file under `folder` durable and record its size and checksum, last of all the manifest itself."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    folders = [path for path in folder.rglob("*") if path.is_dir()]
    # Flushing waits for the disk and hashing for the processor (outside the interpreter lock): they overlap.
    with ThreadPoolExecutor(max_workers=2) as pool:
        flushed = pool.map(fsync_file, files)
        digests = list(pool.map(sha256, files))
        list(flushed)
    body = {
        "format": FORMAT,
        "step": step,
        "serial": serial,
        "run": run,
        "meta": meta,
        "files": {
            path.relative_to(folder).as_posix(): {"size": path.stat().st_size, "sha256": digest}
            for path, digest in zip(files, digests)
        },
    }
    body = json.loads(json.dumps(body))  # what a reader will see: the checksum is of that
    body["checksum"] = _checksum(body)
    for inner in folders:
        fsync_folder(inner)
    write_text(folder / MANIFEST, json.dumps(body, indent=2) + "\n")


def read_manifest(folder: Path) -> Checkpoint:
    """Read and check the manifest alone, which is quick; raise an `UnusableError` when it cannot be trusted."""
    return checkpoint_of(folder, read_body(folder))


def read_all(folder: Path) -> tuple[list[Checkpoint], dict[Path, UnusableError]]:
    """Checkpoints by their manifests alone, the last written first, and those whose manifests cannot be used."""
    found: list[Checkpoint] = []
    problems: dict[Path, UnusableError] = {}
    for path in candidates(folder):
        try:
            found.append(read_manifest(path))
        except UnusableError as problem:
            problems[path] = problem
    # By the order of writing, not by step: a run sent back to an early step must resume where it now is.
    return sorted(found, key=lambda checkpoint: checkpoint.serial, reverse=True), problems


def step_of(path: Path) -> int:
    """The step that the name of a checkpoint's folder says."""
    match = STEP.fullmatch(path.name)
    return int(match[1]) if match else -1


def candidates(folder: Path) -> list[Path]:
    """Everything with the name of a checkpoint, links to nowhere included, highest step first."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UserError(f"{folder}: its checkpoints cannot be listed: {error.strerror or error}") from error
    return sorted((folder / name for name in names if STEP.fullmatch(name)), key=step_of, reverse=True)


def checkpoint_of(folder: Path, body: dict[str, Any]) -> Checkpoint:
    """Return the checkpoint that the body of a manifest describes."""
    return Checkpoint(folder, body["step"], body["meta"], body["serial"], body.get("run"))


def read_body(folder: Path) -> dict[str, Any]:
    """Return what the manifest holds, checked; raise an `UnusableError` when it cannot be trusted."""
    body = _parsed(_content(folder))
    if not isinstance(body, dict):
        raise DamagedError(f"{MANIFEST} does not match its own checksum")
    form = body.get("format")
    # Before the checksum, which another format may compute in another way.
    if isinstance(form, int | float | str) and form != FORMAT:
        raise OtherFormatError(
            f"{MANIFEST} has format {str(form)[:40]!r}, and this version of whet reads format {FORMAT}"
        )
    try:
        matches = body.pop("checksum", None) == _checksum(body)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{MANIFEST} cannot be read ({type(error).__name__})") from error
    if not matches:
        raise DamagedError(f"{MANIFEST} does not match its own checksum")
    _check_schema(body)
    return body


def _content(folder: Path) -> bytes:
    """The bytes of the manifest; links are followed, pipes and devices are not opened."""
    path = folder / MANIFEST
    try:
        if not stat.S_ISDIR(os.stat(folder).st_mode):
            raise DamagedError("it is not a folder")
    except FileNotFoundError:
        raise UnreadableError("it is a link to something that is not there now") from None
    except OSError as error:
        raise UnreadableError(reason(error)) from error
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
            raise DamagedError(f"{MANIFEST} is not a file that whet wrote")
        return path.read_bytes()
    except FileNotFoundError:
        raise DamagedError(f"it has no {MANIFEST}") from None
    except OSError as error:
        raise UnreadableError(f"{MANIFEST}: {reason(error)}") from error


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except RecursionError:
        raise DamagedError(f"{MANIFEST} cannot be read (it is nested too deeply)") from None
    except ValueError as error:
        raise DamagedError(f"{MANIFEST} cannot be read ({error})") from error


def _check_schema(body: dict[str, Any]) -> None:
    """Raise `DamagedError` unless everything has the type and range that `write_manifest` gives it."""
    wrong = [
        name
        for name, fits in (
            ("format", body.get("format") == FORMAT),
            ("step", _is_count(body.get("step")) and body["step"] < MOST_STEPS),
            ("serial", _is_count(body.get("serial"))),
            ("run", isinstance(body.get("run"), str | None)),
            ("meta", isinstance(body.get("meta"), dict)),
            ("files", isinstance(body.get("files"), dict)),
        )
        if not fits
    ]
    if wrong:
        raise DamagedError(f"{MANIFEST} has no usable {', '.join(wrong)}")
    for name, recorded in body["files"].items():
        if not _is_inside(name):
            raise DamagedError(f"{MANIFEST} lists {name[:200]!r}, which is no file of the checkpoint")
        described = isinstance(recorded, dict) and _is_count(recorded.get("size"))
        if not described or not isinstance(recorded.get("sha256"), str):
            raise DamagedError(f"{MANIFEST} has no size and checksum of {name}")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\0" not in name


def _checksum(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def sha256(path: Path) -> str:
    """Return the checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def reason(error: OSError) -> str:
    """Return what the system says about an error."""
    return error.strerror or str(error)
