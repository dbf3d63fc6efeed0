"""The folder of one run: made, probed and locked before any work starts.

Layout: `config.yaml`, `metrics.jsonl`, `curves.svg`, `run.log`, `samples/`, and the checkpoints `global_step_N/`.
metrics.jsonl has one strict JSON object per line and is only ever appended to; every sample of a step is a row of one
Parquet file in samples/, for people to read and query.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from whet.checkpoint.durable import SIDE_MARK, append_line, fsync_file, replacing, write_text
from whet.config.texts import size_text
from whet.errors import UserError
from whet.types import Media, Sample

KEY = "trainer.save_checkpoint_path"
NOT_FINITE = "not_finite"
MOST_INFO = 100  # columns of numbers that environments report


class RunFolder:
    """A run's folder, held by this process until `close`."""

    def __init__(self, path: str | Path, needed_bytes: int = 0) -> None:
        """Create the folder, prove that it can be written, lock it, and check that `needed_bytes` are free."""
        self.path = Path(os.path.expanduser(path)).absolute()  # Path.expanduser raises for ~nobody
        self._lock: int | None = None
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(self.path)
            _probe(self.path)
            _clear_side_files(self.path, self.samples, self.tokens, self.pictures)
        except OSError as error:
            self.close()
            raise UserError(_unusable(self.path, error)) from error
        except BaseException:
            self.close()
            raise
        self.check_free(needed_bytes)

    @property
    def config(self) -> Path:
        """The resolved config, as the run was started with it."""
        return self.path / "config.yaml"

    @property
    def metrics(self) -> Path:
        """One JSON object per step."""
        return self.path / "metrics.jsonl"

    @property
    def curves(self) -> Path:
        """Charts of the metrics, as of the latest validation."""
        return self.path / "curves.svg"

    @property
    def samples(self) -> Path:
        """Parquet files of every sample."""
        return self.path / "samples"

    @property
    def tokens(self) -> Path:
        """Parquet files of token records."""
        return self.path / "tokens"

    @property
    def pictures(self) -> Path:
        """Pictures of the samples that have token records."""
        return self.path / "pictures"

    @property
    def log(self) -> Path:
        """Path of the console's output, in plain text."""
        return self.path / "run.log"

    def free_bytes(self) -> int:
        """Return the free bytes of the folder's disk."""
        return shutil.disk_usage(self.path).free

    def check_free(self, needed_bytes: int) -> None:
        """Refuse to start when the disk cannot hold what the run will write."""
        free = self.free_bytes()
        if free < needed_bytes:
            self.close()
            raise UserError(
                f"{KEY}: {self.path} needs about {size_text(needed_bytes)} for checkpoints, but its disk has "
                f"{size_text(free)} free. Free some space, choose another {KEY}, or lower trainer.save_limit."
            )

    def write_config(self, yaml: str) -> None:
        """Record the config of this start; a config from an earlier start is replaced whole."""
        try:
            write_text(self.config, yaml)
        except OSError as error:
            raise UserError(_unusable(self.config, error)) from error

    def close(self) -> None:
        """Let another process have the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _lock(folder: Path) -> int | None:
    """Hold the folder's lock file and return its descriptor, or raise naming the process that holds it.

    A POSIX record lock and not flock: forked reward workers inherit a flock, and one that outlives a killed trainer
    would keep the folder locked.
    """
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise UserError(
                f"{KEY}: {folder} is in use by another run (process {holder}). Wait for it to end or stop it, or "
                "give this run its own trainer.experiment_name."
            ) from None
        if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            return None  # some cluster file systems are mounted without locks; that must not forbid training
        raise
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    return descriptor


def _probe(folder: Path) -> None:
    """Write, fsync and remove a file: permissions, read-only mounts, quotas and full disks all show here."""
    probe = folder / f".probe-{os.getpid()}"
    try:
        probe.write_bytes(b"\0" * 4096)
        fsync_file(probe)
    finally:
        probe.unlink(missing_ok=True)


def _clear_side_files(*folders: Path) -> None:
    """Remove files that a killed run was still writing to the side."""
    for folder in folders:
        for path in folder.glob(f".*{SIDE_MARK}*"):
            if path.is_file():
                path.unlink()


def _unusable(path: Path, error: OSError) -> str:
    obstacle = next((part for part in [path, *path.parents] if part.exists() and not part.is_dir()), None)
    if obstacle is not None:
        reason = f"{obstacle} is a file, not a folder"
    else:
        reason = error.strerror or str(error)
    return f"{KEY}: cannot write to {path}: {reason}. Choose a folder that this user can write to, on a disk with room."


def append_metrics(path: Path, step: int, metrics: Mapping[str, float]) -> None:
    """Append one durable line of strict JSON.

    A number that is not finite is null there, and `not_finite` of the line says what it is: "nan", "inf" or "-inf".
    """
    values = {name: _plain(value) for name, value in metrics.items()}
    broken = {name: str(value) for name, value in values.items() if not math.isfinite(value)}
    line: dict[str, Any] = {"step": step, **values} | dict.fromkeys(broken)
    append_line(path, json.dumps(line | ({NOT_FINITE: broken} if broken else {}), allow_nan=False))


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """The metrics of a run by step: torn lines are skipped, and of what a step logged twice the last counts.

    Numbers that are not finite are floats again (nan, inf).

    A killed run logs a step again when it is redone; a run that only validates adds to a step that was trained before.
    """
    by_step: dict[int, dict[str, Any]] = {}
    for line in Path(path).read_bytes().splitlines():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and isinstance(record.get("step"), int):
            by_step.setdefault(record["step"], {}).update(record | _restored(record.pop(NOT_FINITE, None)))
    return [by_step[step] for step in sorted(by_step)]


def _restored(broken: Any) -> dict[str, float]:
    named = broken.items() if isinstance(broken, dict) else ()
    return {name: float(word) for name, word in named if word in ("nan", "inf", "-inf")}


def _plain(value: float) -> float | int:
    return value if isinstance(value, int) else float(value)


def write_samples(path: Path, step: int, samples: Sequence[Sample], token_log_probs: bool) -> None:
    """Write the samples in one piece, without waiting for the disk: after a power cut the last files may be damaged."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = samples_table(step, samples, token_log_probs)
    with replacing(path, durable=False) as side:
        # zstd finds what samples have in common; dictionaries and statistics would take a third of the time besides.
        pq.write_table(table, side, compression="zstd", use_dictionary=False, write_statistics=False)


def samples_table(step: int, samples: Sequence[Sample], token_log_probs: bool) -> pa.Table:
    """The columns that docs/metrics.md lists; scores besides `overall` get a column each, null where not given."""
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "step": (pa.int64(), [step] * len(samples)),
        "uid": (pa.string(), [clean(sample.prompt.uid) for sample in samples]),
        "index": (pa.int64(), [sample.index for sample in samples]),
        "group": (pa.int64(), [sample.group for sample in samples]),
        "prompt": (pa.string(), [clean(sample.prompt.text) for sample in samples]),
        "response": (pa.string(), [clean(sample.text) for sample in samples]),
        "answer": (pa.string(), [answer_text(sample.prompt.answer) for sample in samples]),
        "finish": (pa.string(), [sample.finish for sample in samples]),
        "length": (pa.int64(), [len(sample.ids) for sample in samples]),
        "turns": (pa.int64(), [sample.turns for sample in samples]),
        "version": (pa.int64(), [sample.version for sample in samples]),
        "reward": (pa.float64(), [sample.reward if "overall" in sample.scores else None for sample in samples]),
        "failure": (pa.string(), [sample.failure and clean(sample.failure) for sample in samples]),
        "dropped": (pa.bool_(), [sample.dropped for sample in samples]),
        "advantage": (pa.float64(), [sample.advantage for sample in samples]),
    }
    if any(sample.prompt.media is not None for sample in samples):
        columns["media"] = (pa.int64(), [_count_media(sample.prompt.media) for sample in samples])
    if any(sample.end is not None for sample in samples):  # episodes with an environment
        columns["end"] = (pa.string(), [sample.end and clean(sample.end) for sample in samples])
        columns["turn_rewards"] = (pa.list_(pa.float64()), [sample.turn_rewards for sample in samples])
        columns["turn_tokens"] = (pa.list_(pa.int64()), [sample.turn_tokens for sample in samples])
        for name in sorted({name for sample in samples for name in sample.info})[:MOST_INFO]:
            columns[f"info/{clean(name)}"] = (pa.float64(), [sample.info.get(name) for sample in samples])
    for name in sorted({name for sample in samples for name in sample.scores} - {"overall"}):
        columns[f"score/{clean(name)}"] = (pa.float64(), [sample.scores.get(name) for sample in samples])
    for name in sorted({name for sample in samples for name in sample.notes}):
        texts = [sample.notes.get(name) for sample in samples]
        columns[f"note/{clean(name)}"] = (pa.string(), [text and clean(text) for text in texts])
    if token_log_probs:
        columns["token_ids"] = (pa.list_(pa.int32()), [sample.ids for sample in samples])
        columns["token_mask"] = (pa.list_(pa.int8()), [sample.mask for sample in samples])
        columns["token_log_probs"] = (pa.list_(pa.float32()), [sample.log_probs for sample in samples])
    return pa.table({name: pa.array(values, type=kind) for name, (kind, values) in columns.items()})


def _count_media(media: Media | None) -> int:
    return 0 if media is None else len(media.images) + len(media.videos)


def answer_text(answer: Any) -> str | None:
    """The answer as text: strings as they are, anything else as JSON."""
    if answer is None or isinstance(answer, str):
        return answer if answer is None else clean(answer)
    return clean(json.dumps(answer, ensure_ascii=False, default=str))


def clean(text: str) -> str:
    """Text that UTF-8 can hold: half a surrogate pair from a JSON file becomes a question mark."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
