"""Private directories: used again where nobody has touched them, and never with anything of another program."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from whet.sandbox.boxes import Folder
from whet.sandbox.limits import Limits
from whet.sandbox.pool import Sandbox

LOOK = "import os; print(os.getcwd(), oct(os.stat('.').st_mode & 0o777), sorted(os.listdir('.')))"
TOUCH = (
    "open('left', 'w').write('x')",
    "import os; os.mkdir('left'); os.chmod('left', 0)",
    "import os; os.symlink('/etc', 'left')",
    "import os\nfor n in range(50): os.mkdir('d'); os.chdir('d')",
    "import os\ntry: os.chmod('.', 0o500)\nexcept OSError: pass",
    "open('left', 'w').close(); import os; os.unlink('left')",
)


def test_no_program_finds_anything_of_another(sandbox: Sandbox) -> None:
    with Sandbox(1, sandbox.layers, Limits(timeout=5.0, memory_mb=128)) as one:
        first = one.run(LOOK).stdout
        assert first.endswith("[]\n")
        for program in TOUCH:
            assert one.run(program).status in ("ok", "error")
            found = one.run(LOOK)
            assert found.status == "ok"
            assert found.stdout.split()[1:] == first.split()[1:]
        base = Path(one._nursery._base)
    assert not base.exists()


def test_an_untouched_folder_is_used_again(tmp_path: Path) -> None:
    box = Folder(str(tmp_path))
    box.open(1)
    path = box.path
    box.close()
    box.open(1)
    assert box.path == path
    box.end()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("what", ["file", "mode", "file that is gone", "folder", "times"])
def test_a_touched_folder_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.chdir("/")  # where emptying a folder leads, as zygotes want it
    box = Folder(str(tmp_path))
    box.open(1)
    path = Path(box.path)
    time.sleep(0.02)  # the kernel's clock for files may tick 100 times a second
    if what == "mode":
        path.chmod(0o711)
    elif what == "times":
        os.utime(path, (1, 1))
    elif what == "folder":
        (path / "a").mkdir()
    else:
        (path / "a").write_text("x")
    if what == "file that is gone":
        (path / "a").unlink()
    box.close()
    assert not path.exists()
    box.open(1)
    assert box.path != str(path)
    assert os.listdir(box.path) == []
    box.end()
