"""Damaged Parquet and Arrow files end in a `UserError`: no value of one is touched before the file was validated."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fuzz.cases import cases
from fuzz.watched import message_of

from whet.data.formats import read_file

EXTREMES = (b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", b"\0\0\0\x80", b"\0\0\0\0", b"\x01\0\0\0")


def table() -> pa.Table:
    columns = {
        "prompt": ["a b c", "what is", "ü 2+3"] * 20,
        "answer": pa.array([1, 2, None] * 20),
        "chat": [[{"role": "user", "content": "x"}], [], None] * 20,
        "number": pa.array([1.5, 2.5, None] * 20),
        "image": pa.array([{"path": "x", "bytes": b"\0\xff"}] * 60),
        "kind": pa.array(["x", "y", "x"] * 20).dictionary_encode(),
        "long": pa.array(["x"] * 60, pa.large_string()),
        "when": pa.array([0] * 60, pa.timestamp("us", "UTC")),
        "day": pa.array([1] * 60, pa.date32()),
        "money": pa.array([1] * 60).cast(pa.decimal128(25, 2)),
        "map": pa.array([[("k", 1)]] * 60, pa.map_(pa.string(), pa.int64())),
        "nothing": pa.nulls(60),
    }
    return pa.table(columns)


def sound_files(folder: Path) -> list[Path]:
    pq.write_table(table(), folder / "snappy.parquet")
    pq.write_table(table(), folder / "plain.parquet", compression="none", use_dictionary=False)
    kinds = {"file": pa.ipc.new_file, "stream": pa.ipc.new_stream}
    for name, writer in kinds.items():
        for compression in (None, "zstd"):
            path = folder / f"{name}_{compression}.arrow"
            options = pa.ipc.IpcWriteOptions(compression=compression)
            with pa.OSFile(str(path), "wb") as sink, writer(sink, table().schema, options=options) as made:
                made.write_table(table(), max_chunksize=25)
    return sorted(folder.iterdir())


def mutated(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        at = rng.randrange(len(changed))
        match rng.randrange(7):
            case 0:
                changed[at] = rng.randrange(256)
            case 1:
                changed[at] ^= 1 << rng.randrange(8)
            case 2:
                changed[at : at + 4] = rng.choice(EXTREMES)
            case 3:
                del changed[at : at + rng.randrange(1, 50)]
            case 4:
                changed[at:at] = rng.randbytes(rng.randrange(1, 20))
            case 5:
                other, size = rng.randrange(len(changed)), rng.randrange(1, 64)
                changed[at : at + size] = changed[other : other + size]
            case 6:
                changed = changed[: at + 1]
        changed = changed or bytearray(b"x")
    return bytes(changed)


def outcome(path: Path) -> int:
    """The exit status of a child that reads a file, which may crash: 0 for rows, 2 for a `UserError`."""
    child = os.fork()
    if child == 0:
        try:
            code = 0 if message_of(lambda: read_file(path)) is None else 2
        except BaseException:
            code = 3
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


CHILD = """
import random, sys
from collections import Counter
from pathlib import Path
from fuzz.test_fuzz_arrow import mutated, outcome, sound_files

folder = Path(sys.argv[1])
sound = [(path.suffix, path.read_bytes()) for path in sound_files(folder)]
seen = Counter()
for seed in range(int(sys.argv[2])):
    rng = random.Random(seed)
    suffix, data = sound[seed % len(sound)]
    path = folder / f"damaged{suffix}"
    path.write_bytes(mutated(data, rng))
    code = outcome(path)
    seen[code] += 1
    if code not in (0, 2):
        print("seed", seed, "code", code)
print(seen[0], seen[2])
"""


def test_damaged_files_are_refused_or_read(tmp_path: Path):
    """In an interpreter of its own: its children are forks, and this one has threads."""
    count = cases(60, 300)
    command = [sys.executable, "-c", CHILD, str(tmp_path), str(count)]
    paths = os.pathsep.join((str(Path(__file__).parents[2]), str(Path(__file__).parents[1])))
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, timeout=60 + 5 * count
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "seed" not in done.stdout, done.stdout
    read, refused = map(int, done.stdout.split()[-2:])
    assert read + refused == count
    assert refused > count / 2


def test_sound_files_are_read(tmp_path: Path):
    for path in sound_files(tmp_path):
        rows = read_file(path)
        assert len(rows) == 60
        assert rows[2]["prompt"] == "ü 2+3"


def test_text_that_is_no_utf8(tmp_path: Path):
    buffers = [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]
    batch = pa.record_batch({"prompt": pa.Array.from_buffers(pa.string(), 1, buffers)})
    path = tmp_path / "x.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as made:
        made.write_batch(batch)
    assert "not a readable Arrow file" in (message_of(lambda: read_file(path)) or "")


def test_more_rows_than_memory_holds(tmp_path: Path):
    if os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") > 300 << 30:
        pytest.skip("this machine holds as many rows as a batch can have")
    nothing = pa.Array.from_buffers(pa.null(), 2**31 - 1, [None])
    batch = pa.record_batch([nothing], names=["prompt"])
    path = tmp_path / "x.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, batch.schema) as made:
        made.write_batch(batch)
    assert "more than this machine's memory holds" in (message_of(lambda: read_file(path)) or "")


def test_two_columns_of_one_name(tmp_path: Path):
    both = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["prompt", "prompt"])
    pq.write_table(both, tmp_path / "x.parquet")
    assert "two columns are called 'prompt'" in (message_of(lambda: read_file(tmp_path / "x.parquet")) or "")


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".jsonl", ".json", ".csv"])
def test_any_bytes_under_any_name(suffix: str, tmp_path: Path):
    seen: Counter[bool] = Counter()
    for seed in range(cases(20, 200)):
        rng = random.Random(seed)
        start = rng.choice((b"", b"PAR1", b"ARROW1\0\0", b"\xff\xff\xff\xff", b"[", b"{", b'{"a":', b'"'))
        (tmp_path / f"x{suffix}").write_bytes(start + rng.randbytes(rng.randrange(200)))
        seen[message_of(lambda: read_file(tmp_path / f"x{suffix}")) is not None] += 1
    assert seen[True] > seen[False]
