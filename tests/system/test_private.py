"""Folders and files in shared places are believed only where nobody else could have written them."""

import os
from pathlib import Path

import pytest

from whet.errors import UserError
from whet.system import private, secret

ROOT = os.getuid() == 0


@pytest.fixture(autouse=True)
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def test_the_folder_is_the_users_alone_and_stays_the_same(shared: Path):
    made = private.folder()
    assert made == shared / f"whet-{os.getuid()}"
    assert made.stat().st_mode & 0o777 == 0o700
    assert private.folder() == made


def test_the_runtime_folder_is_preferred_where_it_is_private(shared: Path, monkeypatch: pytest.MonkeyPatch):
    runtime = shared / "run"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    assert private.folder() == runtime / "whet"
    runtime.chmod(0o777)
    assert private.folder() == shared / f"whet-{os.getuid()}"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(shared / "missing"))
    assert private.folder() == shared / f"whet-{os.getuid()}"


@pytest.mark.parametrize("how", ["open", "link", "file", "group"])
def test_a_folder_that_others_prepared_is_refused(shared: Path, how: str):
    place, elsewhere = shared / f"whet-{os.getuid()}", shared / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    if how == "link":
        place.symlink_to(elsewhere)
    elif how == "file":
        place.write_text("")
    else:
        place.mkdir()
        place.chmod(0o777 if how == "open" else 0o750)
    instead = private.folder()
    assert instead.is_relative_to(shared / "home")
    assert instead.stat().st_mode & 0o777 == 0o700
    instead.chmod(0o777)
    with pytest.raises(UserError, match=f"whet-{os.getuid()} that nobody else may change"):
        private.folder()


@pytest.mark.skipif(not ROOT, reason="only root can give files away")
def test_what_another_user_owns_is_not_believed(shared: Path):
    file = shared / "note"
    file.write_text("127.0.0.1:6379")
    assert private.read_own(file) == "127.0.0.1:6379"
    os.chown(file, 12345, 12345)
    assert private.read_own(file) is None
    place = private.folder()
    os.chown(place, 12345, 12345)
    assert private.folder() != place


def test_links_pipes_and_writable_files_are_not_believed(shared: Path):
    file = shared / "note"
    file.write_text("text")
    file.chmod(0o644)
    assert private.read_own(file) == "text"
    (shared / "link").symlink_to(file)
    os.mkfifo(shared / "pipe")
    for other in ("link", "pipe", "missing", "."):
        assert private.read_own(shared / other) is None
    for mode in (0o666, 0o664, 0o646):
        file.chmod(mode)
        assert private.read_own(file) is None
    file.chmod(0o600)
    file.write_bytes(b"x" * 100_000)
    assert len(private.read_own(file) or "") == 4096


def test_the_secret_of_a_machine_is_kept_and_renewed_when_it_cannot_be_believed():
    first = secret.of_this_machine()
    assert len(first) == 64
    assert secret.of_this_machine() == first
    file = private.folder() / "rank_secret"
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o666)
    second = secret.of_this_machine()
    assert second != first
    file.write_text("short")
    assert secret.of_this_machine() not in (first, second, "short")


@pytest.mark.skipif(not ROOT, reason="only root can give files away")
@pytest.mark.parametrize("planted", ["folder", ".quickstart.lock", "."])
def test_built_ins_that_another_user_planted_are_refused(
    shared: Path, monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    from whet.assets.store import builtin, recipes

    home = shared / "everybody"
    home.mkdir()
    (shared if planted == "." else home).chmod(0o1777)
    monkeypatch.setenv("WHET_HOME", str(home))
    path = home / (f"quickstart-{recipes()['quickstart'].version}" if planted == "folder" else planted)
    path.mkdir(exist_ok=True) if planted == "folder" else path.touch()
    os.chown(path, 12345, 12345)
    with pytest.raises(UserError, match="belongs to another user"):
        builtin("whet/quickstart", lambda text: None)
