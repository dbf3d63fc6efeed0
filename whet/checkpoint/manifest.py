"""The manifest of a checkpoint: what it holds, file by file, with sizes and checksums."""

from __future__ import annotations

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.checkpoint.durable import fsync_file, fsync_folder, write_text

MANIFEST = "manifest.json"
FORMAT = 1


class DamagedError(Exception):
    """A checkpoint is not what its manifest says; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint that stands: where it is and what was said when it was saved."""

    path: Path
    step: int
    meta: dict[str, Any]
    serial: int  # the order of writing within the run folder


def write_manifest(folder: Path, step: int, serial: int, meta: dict[str, Any]) -> None:
    """Make every file under `folder` durable and record its size and checksum, last of all the manifest itself."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    folders = [path for path in folder.rglob("*") if path.is_dir()]
    # Flushing waits for the disk and hashing for the processor (outside the interpreter lock): they overlap.
    with ThreadPoolExecutor(max_workers=2) as pool:
        flushed = pool.map(fsync_file, files)
        digests = list(pool.map(_sha256, files))
        list(flushed)
    body = {
        "format": FORMAT,
        "step": step,
        "serial": serial,
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
    """Read and check the manifest alone, which is quick; raise `DamagedError` when it cannot be trusted."""
    body = _read(folder)
    return Checkpoint(folder, body["step"], body["meta"], body["serial"])


def verify(folder: Path) -> Checkpoint:
    """Check every file against the manifest, contents included; raise `DamagedError` with the first thing wrong."""
    body = _read(folder)
    for name, recorded in body["files"].items():
        path = folder / name
        if not path.is_file():
            raise DamagedError(f"{name} is missing")
        size = path.stat().st_size
        if size != recorded["size"]:
            raise DamagedError(f"{name} has {size} bytes instead of {recorded['size']}")
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        digests = pool.map(_digest_or_none, [folder / name for name in body["files"]])
        for (name, recorded), digest in zip(body["files"].items(), digests):
            if digest != recorded["sha256"]:
                raise DamagedError(f"{name} does not match its checksum")
    return Checkpoint(folder, body["step"], body["meta"], body["serial"])


def _read(folder: Path) -> dict[str, Any]:
    try:
        body = json.loads((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise DamagedError(f"it has no {MANIFEST}") from None
    except (OSError, ValueError) as error:
        raise DamagedError(f"{MANIFEST} cannot be read ({error})") from error
    if not isinstance(body, dict) or body.pop("checksum", None) != _checksum(body):
        raise DamagedError(f"{MANIFEST} does not match its own checksum")
    if body["format"] != FORMAT:
        raise DamagedError(f"{MANIFEST} has format {body['format']}, and this version of whet reads format {FORMAT}")
    return body


def _checksum(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_or_none(path: Path) -> str | None:
    try:
        return _sha256(path)
    except OSError:  # a bad sector: as good as a wrong checksum
        return None
