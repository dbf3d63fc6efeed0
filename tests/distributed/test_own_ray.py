"""A Ray that whet starts for a run: on loopback, with a token, and without harm for the shell that started the run."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from distributed.workers import Worker

from whet.distributed import Placement, open_ray
from whet.distributed.address import running_address
from whet.errors import UserError
from whet.system import listeners

JOB = Path(__file__).with_name("listening_job.py")


@pytest.mark.slow  # test_ray.py looks at the same in its own process; here a shell would be killed, not the tests
def test_a_run_leaves_its_shell_alone_and_listens_on_loopback_only(own_ray: None):
    """Ray 2.55 and older leave workers in the shell's process group, as newer ones do when told to."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"RAY_ADDRESS": "local", "RAY_process_group_cleanup_enabled": "0", "PYTHONPATH": _path()}
    job = f"({sys.executable} {JOB}; echo still here $?) | cat; echo the shell too"
    done = subprocess.run(
        ["bash", "-c", job], env=environment, start_new_session=True, capture_output=True, text=True, timeout=120
    )
    said, *rest = done.stdout.splitlines() or [""]
    assert rest == ["still here 0", "the shell too"], done.stdout + done.stderr
    found = json.loads(said)
    assert found["sum"] == [3.0, 3.0]
    assert found["leads"] == [True, True]
    assert {"gcs_server", "raylet"} <= set(found["names"])
    assert len(found["listening"]) > 5
    assert [each for each in found["listening"] if each[0].removeprefix("::ffff:") != "127.0.0.1"] == []
    assert not any(found["token"] in argument for argument in found["arguments"])


def _path() -> str:
    return os.pathsep.join([str(JOB.parents[1]), str(JOB.parents[2]), os.environ.get("PYTHONPATH", "")])


@pytest.mark.parametrize("version", ["2.40.0", "2.51.2", "1.13", "nonsense"])
def test_a_ray_that_was_never_tried_is_refused(monkeypatch: pytest.MonkeyPatch, version: str):
    old = ModuleType("ray")
    old.__version__ = version
    monkeypatch.setitem(sys.modules, "ray", old)
    monkeypatch.setenv("RAY_ADDRESS", "local")
    with pytest.raises(UserError, match=rf"Ray {version} is older than what whet works with; pip install 'ray>=2\.52'"):
        open_ray(Worker, Placement(per_node=2, device="cpu"))


@pytest.fixture
def note(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Where `ray start` leaves an address, with a process of this user behind it."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    (tmp_path / "ray").mkdir()
    file = tmp_path / "ray" / "ray_current_cluster"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        file.write_text(f"127.0.0.1:{listener.getsockname()[1]}")
        file.chmod(0o644)
        yield file


def test_a_note_of_this_user_is_believed(note: Path):
    assert running_address() == note.read_text()


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o622])
def test_a_note_that_others_can_write_is_not_believed(note: Path, mode: int):
    note.chmod(mode)
    assert running_address() is None


def test_a_note_behind_a_link_is_not_believed(note: Path):
    note.rename(note.with_name("other"))
    note.symlink_to("other")
    assert running_address() is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_note_of_another_user_is_not_believed(note: Path):
    os.chown(note, 12345, 12345)
    assert running_address() is None


LISTEN_AS_ANOTHER = """
import os, socket, sys, time
os.setuid(12345)
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
time.sleep(100)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start a process of another user")
def test_a_port_that_another_user_took_over_is_not_believed(note: Path):
    """A crash left the note; the port went to somebody else."""
    stranger = subprocess.Popen([sys.executable, "-c", LISTEN_AS_ANOTHER], stdout=subprocess.PIPE, text=True)
    try:
        port = int(stranger.stdout.readline())
        assert listeners.users_of(port) == {12345}
        note.write_text(f"127.0.0.1:{port}")
        assert running_address() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize(
    "content", ["127.0.0.1", "127.0.0.1:x", ":", "127.0.0.1:99999999", "\0", "a" * 10000, "[::1]:6"]
)
def test_a_note_without_sense_is_not_believed(note: Path, content: str):
    note.write_text(content)
    assert running_address() is None
