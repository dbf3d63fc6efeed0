"""The run folder: what is wrong with it is said before any work starts."""

import os
import subprocess
import sys

import pytest

from whet.config.texts import size_text
from whet.errors import UserError
from whet.tracking.run_folder import RunFolder

HOLDER = """
import sys, time
from whet.tracking.run_folder import RunFolder
folder = RunFolder(sys.argv[1])
print("held", flush=True)
time.sleep(60)
"""

HOLDER_WITH_CHILD = """
import os, sys, time
from whet.tracking.run_folder import RunFolder
folder = RunFolder(sys.argv[1])
child = os.fork()
if child == 0:
    time.sleep(60)
print(child, flush=True)
time.sleep(60)
"""


def start(code, path):
    """A process that holds the folder; returns it and the line it says once it does."""
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().strip()


def test_creates_missing_parents_and_leaves_no_probe(tmp_path):
    with RunFolder(tmp_path / "a" / "b") as folder:
        assert folder.path.is_dir()
        assert [path.name for path in folder.path.iterdir()] == [".lock"]


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "notes").write_text("x")
    with pytest.raises(UserError, match=r"trainer\.save_checkpoint_path.*notes is a file"):
        RunFolder(tmp_path / "notes")
    with pytest.raises(UserError, match=r"trainer\.save_checkpoint_path.*notes is a file"):
        RunFolder(tmp_path / "notes" / "run")


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc, which nobody can write to")
def test_an_unwritable_folder_is_an_error():
    with pytest.raises(UserError, match=r"trainer\.save_checkpoint_path: cannot write to /proc/"):
        RunFolder("/proc/whet/run")


def test_too_little_disk_says_need_and_have(tmp_path):
    with pytest.raises(UserError, match=r"needs about 1000000000\.0 GB .* has \d+\.\d GB free"):
        RunFolder(tmp_path / "run", needed_bytes=10**18)
    RunFolder(tmp_path / "run", needed_bytes=1000).close()
    assert (size_text(123_456_789_012), size_text(1_240_000)) == ("123.5 GB", "1.2 MB")


def test_config_is_replaced_whole(tmp_path):
    with RunFolder(tmp_path) as folder:
        folder.write_config("a: 1\n" * 100)
        folder.write_config("a: 2\n")
        assert folder.config.read_text() == "a: 2\n"
        assert folder.config.stat().st_mode & 0o777 == 0o666 & ~current_umask()


def test_files_that_a_killed_run_left_half_written_are_cleared(tmp_path):
    (tmp_path / "samples").mkdir()
    for name in (".config.yaml.tmp-1a", "samples/.train_000001.parquet.tmp-2b", "samples/train_000001.parquet"):
        (tmp_path / name).write_text("x")
    RunFolder(tmp_path).close()
    assert sorted(path.name for path in tmp_path.rglob("*")) == [".lock", "samples", "train_000001.parquet"]


def test_a_second_process_is_told_who_holds_the_folder(tmp_path):
    process, _ = start(HOLDER, tmp_path)
    try:
        with pytest.raises(UserError, match=rf"in use by another run \(process {process.pid} on"):
            RunFolder(tmp_path)
    finally:
        process.kill()
        process.wait()
    RunFolder(tmp_path).close()


def test_a_worker_that_outlives_a_killed_run_does_not_hold_the_folder(tmp_path):
    process, child = start(HOLDER_WITH_CHILD, tmp_path)
    try:
        process.kill()
        process.wait()
        RunFolder(tmp_path).close()
    finally:
        os.kill(int(child), 9)


def current_umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask
