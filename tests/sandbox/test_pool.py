# ruff: noqa: E501  (programs as one reads them)
"""The pool: many programs at once, its ends, its limits, languages, and what a program is given."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sandbox.test_hostile import processes_below

from whet.errors import UserError
from whet.sandbox import pool as pool_module
from whet.sandbox.limits import Limits
from whet.sandbox.pool import Sandbox

CPP = "#include <iostream>\nint main() { long a; std::cin >> a; std::cout << 2 * a << std::endl; }"


def test_sixty_four_at_once_leave_nothing(sandbox: Sandbox) -> None:
    limits = Limits(timeout=1.0, memory_mb=64, processes=8, output_bytes=10_000)
    kinds = ["while True: pass", "x = []\nwhile True: x.append(bytearray(1 << 20))", "print('fine')"]
    kinds += ["import os, time\nfor _ in range(4): os.fork()\nopen(str(os.getpid()), 'w').close()\ntime.sleep(60)"]
    kinds += ["import time; time.sleep(60)", *kinds[1:]]
    began = time.monotonic()
    with Sandbox(64, sandbox.layers, limits) as many, ThreadPoolExecutor(64) as threads:
        results = list(threads.map(lambda at: many.run(kinds[at % 8]), range(64)))
        base = many._nursery._base
        assert all(processes_below(worker.pid) == [] for worker in many._free)
        zygotes = [worker.pid for worker in many._free]
    took = time.monotonic() - began
    assert [each.status for each in results[0::4]] == ["timeout"] * 16
    assert {each.status for each in results[1::4]} <= {"memory_limit", "timeout"}
    assert {each.status for each in results[3::4]} <= {"timeout", "memory_limit", "error"}
    fine = [each.status for each in results[2::4]]
    assert set(fine) <= {"ok", "timeout"}
    assert fine.count("ok") >= 8
    assert max(each.seconds for each in results) < 1.0 + 4.0
    assert took < 60
    assert not os.path.exists(base)
    assert all(_is_gone(pid) for pid in zygotes)


def _is_gone(pid: int) -> bool:
    for _ in range(100):
        if not os.path.exists(f"/proc/{pid}"):
            return True
        time.sleep(0.05)
    return False


def test_everything_ends_with_the_process_that_holds_the_pool(sandbox: Sandbox) -> None:
    source = (
        "import sys, threading, time\nfrom whet.sandbox.pool import Sandbox\n"
        f"pool = Sandbox(1, {sandbox.layers!r})\n"
        "pid, base = pool._free[0].pid, pool._nursery._base\n"
        "threading.Thread(target=pool.run, args=('import os, time\\nos.fork(); time.sleep(60)',), daemon=True).start()\n"
        "time.sleep(0.5)\nprint(pid, pool._nursery._process.pid, base, flush=True)\ntime.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    zygote, nursery, base = holder.stdout.readline().split()
    below = processes_below(int(zygote))
    assert len(below) == 2
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert all(_is_gone(pid) for pid in (int(zygote), int(nursery), *below))
    assert not os.path.exists(base)


def test_a_zygote_that_is_killed_is_replaced(any_sandbox: Sandbox) -> None:
    with Sandbox(1, any_sandbox.layers) as pool:
        os.kill(pool._free[0].pid, signal.SIGKILL)
        time.sleep(0.1)
        assert pool.run("print(1)").status == "lost"
        assert pool.run("print(2)").stdout == "2\n"


def test_layers_that_cannot_be_had_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"sandbox\.layers=chroot"):
        Sandbox(1, "chroot")
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(UserError, match="Linux"):
        Sandbox(1)


def test_nothing_runs_where_nothing_confines(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: object, layers: str) -> None:
        raise pool_module.NotConfinedError("the kernel says no")

    monkeypatch.setattr(pool_module.Nursery, "fork", refuse)
    with pytest.raises(UserError, match=r"cannot be confined here, so none is run \(namespaces: the kernel says no"):
        Sandbox(1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timeout", 0),
        ("timeout", float("nan")),
        ("memory_mb", 1),
        ("processes", 0),
        ("output_bytes", -1),
        ("disk_mb", 1.5),
    ],
)
def test_limits_that_make_no_sense_are_refused(name: str, value: float) -> None:
    with pytest.raises(UserError, match=f"sandbox.{name}="):
        Limits(**{name: value})


def test_files_are_there_and_names_stay_inside(sandbox: Sandbox) -> None:
    program = "print(open('data/a.txt').read(), sorted(__import__('os').listdir('.')))"
    assert sandbox.run(program, files={"data/a.txt": b"hello"}).stdout == "hello ['data']\n"
    assert sandbox.run("import os; print(os.listdir('.'))").stdout == "[]\n"
    for name in ("../x", "/etc/x", "a/../../x", "", "a//b", "x\0"):
        with pytest.raises(UserError, match="relative path"):
            sandbox.run("1", files={name: b""})


def test_programs_are_run_as_python_runs_them(sandbox: Sandbox) -> None:
    run = lambda program, stdin="": sandbox.run(program, stdin, Limits(timeout=20))  # noqa: E731
    assert run("import sys\nprint(sys.stdin.buffer.read())", "a\nb").stdout == "b'a\\nb'\n"
    assert run("print(__name__, __file__)").stdout == "__main__ program.py\n"
    failed = run("def f():\n    return 1 / 0\nf()")
    assert failed.exit_code == 1
    assert failed.stderr.endswith("ZeroDivisionError: division by zero\n")
    assert "    return 1 / 0\n" in failed.stderr
    assert "whet" not in failed.stderr
    assert "SyntaxError" in run("x = = 1").stderr
    assert run("raise SystemExit(7)").exit_code == 7
    assert run("import sys\nsys.exit('why')").stderr == "why\n"
    assert run("import atexit\natexit.register(print, 'end')\nprint('begin')").stdout == "begin\nend\n"
    threaded = "import threading\nthreading.Thread(target=print, args=('in a thread',)).start()"
    assert run(threaded).stdout == "in a thread\n"
    modules = "import asyncio, random, decimal, sqlite3, subprocess, tempfile, multiprocessing\n"
    modules += "async def f(): return 5\nprint(asyncio.run(f()), tempfile.gettempdir() != '')"
    assert run(modules).stdout == "5 True\n", run(modules)
    assert run("print('ü', chr(0x1F600))").stdout == "ü 😀\n"
    assert run("import os\nos.write(1, b'\\xff')").stdout == "�"


def test_refused_calls_are_named(sandbox: Sandbox) -> None:
    result = sandbox.run("import socket\ntry: socket.socket()\nexcept OSError as error: print(error)")
    assert result.status == "ok"
    if sandbox.description["notifies"]:
        assert result.refused == ("socket(AF_INET)",)


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_cpp_is_compiled_and_run(sandbox: Sandbox) -> None:
    limits = Limits(timeout=10)
    result = sandbox.run(CPP, "21", limits, name="cpp")
    assert (result.status, result.stdout) == ("ok", "42\n"), result
    wrong = sandbox.run("int main() { return x; }", "", limits, name="cpp")
    assert wrong.status == "compile_error"
    assert "not declared" in (wrong.compile_output or "")
    assert sandbox.run("int main() { volatile int *p = 0; return *p; }", "", limits, name="cpp").exit_code == -11
    assert sandbox.run('#include "/etc/passwd"\nint main() {}', "", limits, name="cpp").status == "compile_error"


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_is_run(sandbox: Sandbox) -> None:
    result = sandbox.run(
        "read x; echo $((x * 2)) | cat; cat /etc/passwd; exit 3", "21", Limits(timeout=10), name="bash"
    )
    assert result.stdout == "42\n"
    assert result.exit_code == 3
    assert "passwd" in result.stderr
    with pytest.raises(UserError, match="python, cpp and bash"):
        sandbox.run("1", name="cobol")


def test_zygotes_hold_no_heavy_modules() -> None:
    source = "import sys\nimport whet.sandbox.nursery\nprint([m for m in ('torch', 'numpy', 'threading', 'random', 'asyncio') if m in sys.modules])"
    path = str(Path(pool_module.__file__).parents[2])
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {path!r})\n{source}"],
        capture_output=True,
        text=True,
    )
    assert ran.stdout == "[]\n", ran
