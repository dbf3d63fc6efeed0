"""Checkpoints stand or do not exist: kills, damage, full disks, pruning."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from patience import PATIENCE

from whet.checkpoint.store import CheckpointStore
from whet.errors import UserError

WRITER = """
import sys
from pathlib import Path
from whet.checkpoint.store import CheckpointStore

store = CheckpointStore(Path(sys.argv[1]), save_limit=2, keep_best=True)
last = store.last()
step = last.step if last else 0
print("ready", flush=True)
while True:
    # Every third time a step is saved twice, as when a resumed run does it again.
    for _ in range(2 if step % 3 == 0 else 1):
        with store.writing(step, {"score": step % 5, "note": f"step {step}"}) as folder:
            (folder / "huggingface").mkdir()
            for name in ("huggingface/model.bin", "optimizer.bin", "state.bin"):
                (folder / name).write_bytes(f"{name} {step} ".encode() * 20_000)
    step += 1
"""


def save(store, step, score=None, text=None):
    """A small checkpoint with a nested file."""
    with store.writing(step, {"score": score, "epoch": 1}) as folder:
        (folder / "hf").mkdir()
        (folder / "hf" / "model.bin").write_text(text or f"weights {step}")
        (folder / "state.json").write_text("{}")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def steps(folder):
    return sorted(int(path.name.removeprefix("global_step_")) for path in folder.glob("global_step_*"))


def test_saves_and_finds_the_last(tmp_path):
    store = CheckpointStore(tmp_path)
    assert store.last() is None
    save(store, 1, 0.5)
    save(store, 2, 0.25)
    found = store.last()
    assert (found.step, found.meta["score"], found.path) == (2, 0.25, tmp_path / "global_step_2")
    assert (found.path / "hf" / "model.bin").read_text() == "weights 2"
    tracker = json.loads((tmp_path / "checkpoint_tracker.json").read_text())
    assert tracker == {"last_global_step": 2, "best_global_step": 1, "best_val_score": 0.5}


def test_the_tracker_file_is_not_believed(tmp_path):
    store = CheckpointStore(tmp_path)
    save(store, 1)
    (tmp_path / "checkpoint_tracker.json").write_text('{"last_global_step": 99}')
    assert store.last().step == 1


def test_meta_comes_back_as_json_sees_it(tmp_path):
    store = CheckpointStore(tmp_path)
    meta = {"position": {"epoch": 1, "order": [3, 1]}, "lr": 1e-6, "by_rank": {10: "a", 2: "b"}, "name": "é\ud800"}
    with store.writing(1, meta):
        pass
    assert store.last().meta == {**meta, "by_rank": {"10": "a", "2": "b"}}


def test_keeps_the_newest_and_the_best(tmp_path):
    store = CheckpointStore(tmp_path, save_limit=2, keep_best=True)
    for step, score in enumerate([0.1, 0.9, 0.3, None, float("nan"), 0.4], start=1):
        save(store, step, score)
    assert steps(tmp_path) == [2, 5, 6]
    store = CheckpointStore(tmp_path, save_limit=1, keep_best=False)
    save(store, 7, 0.2)
    assert steps(tmp_path) == [7]
    assert names(tmp_path) == ["checkpoint_tracker.json", "global_step_7"]


def test_a_failed_save_prunes_nothing_and_leaves_nothing(tmp_path):
    store = CheckpointStore(tmp_path, save_limit=1)
    save(store, 1)
    before = names(tmp_path)
    with pytest.raises(TypeError):
        save(store, 2, text=3)
    assert names(tmp_path) == before
    assert store.last().step == 1


def test_the_same_step_again_replaces(tmp_path):
    store = CheckpointStore(tmp_path, save_limit=3)
    save(store, 1, text="first")
    save(store, 1, text="second")
    assert (store.last().path / "hf" / "model.bin").read_text() == "second"
    assert names(tmp_path) == ["checkpoint_tracker.json", "global_step_1"]


def test_a_run_sent_back_to_an_early_step_goes_on_from_there(tmp_path):
    store = CheckpointStore(tmp_path, save_limit=2, keep_best=False)
    for step in (10, 20, 30):
        save(store, step)
    save(store, 15)
    assert store.last().step == 15
    save(store, 17)
    assert steps(tmp_path) == [15, 17]


def test_leftovers_of_a_killed_save_are_cleared_and_a_displaced_checkpoint_is_put_back(tmp_path):
    save(CheckpointStore(tmp_path), 1)
    save(CheckpointStore(tmp_path), 2)
    (tmp_path / ".global_step_3.tmp-0a").mkdir()
    (tmp_path / ".global_step_3.tmp-0a" / "half").write_text("x")
    (tmp_path / ".global_step_1.gone-0b").mkdir()
    (tmp_path / "global_step_2").rename(tmp_path / ".global_step_2.was-0c")
    store = CheckpointStore(tmp_path)
    assert names(tmp_path) == ["checkpoint_tracker.json", "global_step_1", "global_step_2"]
    assert store.last().step == 2


def truncate(path):
    os.truncate(path, path.stat().st_size - 1)


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGES = {
    "missing file": (lambda folder: (folder / "hf" / "model.bin").unlink(), r"hf/model\.bin is missing"),
    "truncated file": (lambda folder: truncate(folder / "hf" / "model.bin"), r"has 8 bytes instead of 9"),
    "flipped bit": (lambda folder: flip(folder / "hf" / "model.bin"), r"model\.bin does not match its checksum"),
    "no manifest": (lambda folder: (folder / "manifest.json").unlink(), r"has no manifest\.json"),
    "torn manifest": (lambda folder: truncate(folder / "manifest.json") or truncate(folder / "manifest.json"), "read"),
    "edited manifest": (
        lambda folder: (folder / "manifest.json").write_text(
            (folder / "manifest.json").read_text().replace('"epoch": 1', '"epoch": 2')
        ),
        "does not match its own checksum",
    ),
    "garbage manifest": (lambda folder: (folder / "manifest.json").write_bytes(b"\0\xff" * 50), "cannot be read"),
    "manifest of something else": (lambda folder: (folder / "manifest.json").write_text("[]"), "checksum"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_reported_and_the_one_before_used(tmp_path, damage):
    warnings = []
    store = CheckpointStore(tmp_path, warn=warnings.append)
    save(store, 1)
    save(store, 2)
    act, reason = DAMAGES[damage]
    act(tmp_path / "global_step_2")
    assert store.last().step == 1
    assert len(warnings) == 1
    assert str(tmp_path / "global_step_2") in warnings[0]
    with pytest.raises(UserError, match=reason):
        store.open(tmp_path / "global_step_2")
    save(store, 2)
    assert store.last().step == 2


def test_open_takes_a_checkpoint_or_a_run_folder(tmp_path):
    save(CheckpointStore(tmp_path / "other"), 3)
    save(CheckpointStore(tmp_path / "other"), 4)
    store = CheckpointStore(tmp_path / "mine")
    assert store.open(tmp_path / "other" / "global_step_3").step == 3
    assert store.open(tmp_path / "other").step == 4
    (tmp_path / "other" / "global_step_3").rename(tmp_path / "renamed")
    assert store.open(tmp_path / "renamed").step == 3


def test_open_says_what_is_wrong(tmp_path):
    store = CheckpointStore(tmp_path / "mine")
    with pytest.raises(UserError, match=r"trainer\.load_checkpoint_path.*nowhere is not a folder"):
        store.open(tmp_path / "nowhere")
    with pytest.raises(UserError, match="no usable checkpoint"):
        store.open(tmp_path / "mine")
    save(store, 1)
    truncate(tmp_path / "mine" / "global_step_1" / "state.json")
    with pytest.raises(UserError, match=r"no usable checkpoint[^\n]*\n.*state\.json has 1 bytes instead of 2"):
        store.open(tmp_path / "mine")


def save_on_full_disk(store, step):
    with store.writing(step, {}) as folder:
        (folder / "model.bin").symlink_to("/dev/full")
        (folder / "model.bin").write_bytes(b"x" * 100)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full, the disk that is always full")
def test_a_full_disk_says_which_checkpoint_is_good(tmp_path):
    store = CheckpointStore(tmp_path, save_limit=1)
    save(store, 4)
    with pytest.raises(UserError) as caught:
        save_on_full_disk(store, 5)
    message = str(caught.value)
    assert "global_step_5: " in message
    assert "No space left on device" in message
    assert f"last good checkpoint is {tmp_path / 'global_step_4'}" in message
    assert names(tmp_path) == ["checkpoint_tracker.json", "global_step_4"]


def test_a_full_disk_reported_by_a_library_in_its_own_words_is_recognised(tmp_path):
    store = CheckpointStore(tmp_path)
    with pytest.raises(UserError, match="No checkpoint of this run is complete yet"), store.writing(5, {}):
        raise RuntimeError("I/O error: No space left on device (os error 28)")


def test_killed_at_random_moments_there_is_always_a_good_checkpoint(tmp_path):
    rng = random.Random(0)
    reached, kills, start = -1, 0, time.monotonic()
    while kills < 12 or (reached <= 2 and time.monotonic() - start < PATIENCE):  # a slow disk needs more of them
        kills += 1
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout.readline() == "ready\n"
            time.sleep(rng.uniform(0.0, 0.25))
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        warnings = []
        found = CheckpointStore(tmp_path, warn=warnings.append).last()
        assert warnings == []
        assert not list(tmp_path.glob(".global_step_*"))
        if found is None:
            assert reached == -1
            continue
        assert found.step >= reached
        reached = found.step
        assert_written_by(found.step, found.path)
    assert reached > 2


def assert_written_by(step: int, folder: Path):
    for name in ("huggingface/model.bin", "optimizer.bin", "state.bin"):
        assert (folder / name).read_bytes() == f"{name} {step} ".encode() * 20_000
