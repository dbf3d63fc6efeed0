# ruff: noqa: E501  (programs as one reads them)
"""Programs that try to reach files, networks and processes outside a sandbox.

Each finds `T` defined: paths, ports and process ids of the host (see conftest.py). It prints ESCAPED if it got what it
should not have; `expected` names the statuses it may end with where that is the point, such as "timeout".
"""

from __future__ import annotations

from typing import NamedTuple


class Hostile(NamedTuple):
    """A program, and the statuses it may end with; () = any but "lost"."""

    source: str
    expected: tuple[str, ...] = ()
    most_seconds: float = 6.0


CALL = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(x86, arm, *arguments):
    number = x86 if os.uname().machine == "x86_64" else arm
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    return result, ctypes.get_errno()
"""


def refused(call: str) -> str:
    """A program whose system call must fail."""
    return f"{CALL}\nresult, error = {call}\nprint('ESCAPED' if result >= 0 else 'held', result, error)\n"


OUTSIDE: dict[str, Hostile] = {
    # files
    "read a secret file": Hostile("try: print('ESCAPED', open(T['secret']).read())\nexcept OSError: print('held')"),
    "read /etc/passwd": Hostile("try: print('ESCAPED', open('/etc/passwd').read())\nexcept OSError: print('held')"),
    "write outside": Hostile(
        "try:\n open(T['marker'], 'w').write('x'); print('ESCAPED')\nexcept OSError: print('held')"
    ),
    "delete a file outside": Hostile(
        "import os\ntry:\n os.unlink(T['secret']); print('ESCAPED')\nexcept OSError: pass"
    ),
    "truncate a file outside": Hostile("import os\ntry: os.truncate(T['secret'], 0)\nexcept OSError: print('held')"),
    "chmod a file outside": Hostile("import os\ntry: os.chmod(T['secret'], 0o777)\nexcept OSError: print('held')"),
    "set times outside": Hostile("import os\ntry: os.utime(T['secret'], (1, 1))\nexcept OSError: print('held')"),
    "symbolic link to a secret": Hostile(
        "import os\nos.symlink(T['secret'], 'link')\ntry: print('ESCAPED', open('link').read())\nexcept OSError: pass"
    ),
    "write through a symbolic link": Hostile(
        "import os\nos.symlink(T['marker'], 'link')\ntry: open('link', 'w').write('x')\nexcept OSError: print('held')"
    ),
    "hard link to a secret": Hostile(
        "import os\ntry:\n os.link(T['secret'], 'link'); print('ESCAPED', open('link').read())\nexcept OSError: pass"
    ),
    "climb with dots": Hostile(
        "import os\nos.chdir('../' * 20)\ntry: print('ESCAPED', open(T['secret'].lstrip('/')).read())\nexcept OSError: pass"
    ),
    "rename a folder outside": Hostile(
        "import os\ntry:\n os.rename(os.getcwd(), T['marker']); print('ESCAPED')\nexcept OSError: print('held')"
    ),
    "list other programs' folders": Hostile(
        "import os\ntry: print('ESCAPED' if T['name'] in os.listdir(T['folder']) else 'held')\nexcept OSError: print('held')"
    ),
    "read /proc of the parent": Hostile(
        "import os\nfor name in ('environ', 'mem', 'cmdline', 'maps', 'fd/0'):\n"
        " for pid in (os.getppid(), 1, T['victim']):\n"
        "  try: print('ESCAPED', open(f'/proc/{pid}/{name}', 'rb').read(64))\n  except OSError: pass"
    ),
    "read /proc/self/environ": Hostile(
        "try: print('ESCAPED' if b'SECRET' in open('/proc/self/environ', 'rb').read() else 'held')\nexcept OSError: pass"
    ),
    "write /proc/sys and /sys": Hostile(
        "for path in ('/proc/sys/kernel/hostname', '/proc/sysrq-trigger', '/sys/kernel/profiling', '/proc/self/oom_score_adj'):\n"
        " try:\n  open(path, 'w').write('1'); print('ESCAPED', path)\n except OSError: pass"
    ),
    "open devices": Hostile(
        "import os\nfor path in ('/dev/mem', '/dev/kmsg', '/dev/sda', '/dev/vda', '/dev/tty', '/dev/ptmx', '/dev/fuse', '/dev/kvm', '/dev/shm/x'):\n"
        " try:\n  os.open(path, os.O_RDWR | os.O_CREAT); print('ESCAPED', path)\n except OSError: pass"
    ),
    "make a device": Hostile(
        "import os\ntry:\n os.mknod('disk', 0o60666, os.makedev(8, 0)); print('ESCAPED')\nexcept OSError: print('held')"
    ),
    "change the interpreter's library": Hostile(
        "import os\ntry:\n open(os.__file__, 'a').write('x'); print('ESCAPED')\nexcept OSError: print('held')"
    ),
    "file handles": Hostile(refused("call(304, 265, -100, ctypes.create_string_buffer(200), 0)")),
    # network
    "TCP over IPv4": Hostile(
        "import socket\ntry:\n socket.create_connection(('127.0.0.1', T['port']), 1); print('ESCAPED')\nexcept OSError: pass"
    ),
    "every family of sockets": Hostile(
        "import socket\nfor family in range(1, 46):\n for kind in (1, 2, 3, 5):\n"
        "  try:\n   socket.socket(family, kind); print('ESCAPED', family)\n  except OSError: pass"
    ),
    "UDP": Hostile(
        "import socket\ntry:\n socket.socket(2, 2).sendto(b'x', ('127.0.0.1', 53)); print('ESCAPED')\nexcept OSError: pass"
    ),
    "abstract unix socket": Hostile(
        "import socket\ntry:\n socket.socket(1, 1).connect('\\0' + T['abstract']); print('ESCAPED')\nexcept OSError: pass"
    ),
    "unix socket by path": Hostile(
        "import socket\ntry:\n socket.socket(1, 1).connect(T['unix']); print('ESCAPED')\nexcept OSError: pass"
    ),
    "connect from a pair": Hostile(
        "import socket\na, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "for target in ('\\0' + T['abstract'], T['unix']):\n"
        " try:\n  a.sendto(b'x', target); print('ESCAPED')\n except OSError: pass\n"
        " try:\n  a.connect(target); print('ESCAPED')\n except OSError: pass"
    ),
    "resolve a name": Hostile(
        "import socket\ntry: print('ESCAPED', socket.gethostbyname('example.com'))\nexcept OSError: print('held')"
    ),
    # processes
    "signal the parent": Hostile(
        "import os, signal\nfor number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):\n"
        " try: os.kill(os.getppid(), number)\n except OSError: pass"
    ),
    "signal another process": Hostile(
        "import os, signal\nfor number in (signal.SIGKILL, signal.SIGSTOP):\n"
        " try: os.kill(T['victim'], number)\n except OSError: print('held')"
    ),
    "signal everybody": Hostile("import os\ntry: os.kill(-1, 9)\nexcept OSError: print('held')"),
    "signal through a pidfd": Hostile(
        "import os, signal\ntry:\n signal.pidfd_send_signal(os.pidfd_open(T['victim']), 9); print('ESCAPED')\n"
        "except OSError: print('held')"
    ),
    "signal by the owner of a pipe": Hostile(
        "import fcntl, os\nr, w = os.pipe()\nfor command in (8, 10):\n"
        " try:\n  fcntl.fcntl(r, command, os.getppid()); print('ESCAPED')\n except OSError: pass"
    ),
    "trace the parent": Hostile(refused("call(101, 117, 16, os.getppid(), 0, 0)")),
    "read the parent's memory": Hostile(
        CALL
        + "buffer = ctypes.create_string_buffer(64)\nvector = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 64)\n"
        "far = (ctypes.c_size_t * 2)(id(None), 64)\n"
        "print('ESCAPED' if call(310, 270, os.getppid(), vector, 1, far, 1, 0)[0] >= 0 else 'held')"
    ),
    "take a descriptor of the parent": Hostile(refused("call(438, 438, 3, 0, 0)")),
    "limits and priority of the parent": Hostile(
        "import os, resource\ntry:\n resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (1, 1)); print('ESCAPED')\n"
        "except OSError: pass\n"
        "for which, who in ((0, os.getppid()), (1, 0), (2, 0)):\n"
        " try:\n  os.setpriority(which, who, 19); print('ESCAPED')\n except OSError: pass\n"
        "try:\n os.sched_setaffinity(os.getppid(), {0}); print('ESCAPED')\nexcept OSError: pass"
    ),
    "fork bomb": Hostile("import os\nwhile True:\n try: os.fork()\n except OSError: pass", ("timeout", "memory_limit")),
    "fork and exit chain": Hostile(
        "import os, time\nif os.fork() == 0:\n os.setsid()\n while True:\n"
        "  try:\n   if os.fork(): os._exit(0)\n  except OSError: time.sleep(0.001)\ntime.sleep(0.2)"
    ),
    "daemon by two forks": Hostile(
        "import os, time\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0:\n  time.sleep(60)\n os._exit(0)\nos.wait()",
        ("ok",),
    ),
    "child that keeps the pipes": Hostile(
        "import os, time\nif os.fork() == 0:\n time.sleep(60)\nprint('over', flush=True)", ("ok",)
    ),
    "zombies": Hostile(
        "import os, time\nfor _ in range(8):\n if os.fork() == 0: os._exit(0)\ntime.sleep(0.05)", ("ok",)
    ),
    "threads": Hostile(
        "import threading, time\nmade = 0\ntry:\n for _ in range(10000):\n"
        "  threading.Thread(target=time.sleep, args=(30,), daemon=True).start(); made += 1\nexcept RuntimeError: pass\n"
        "print('ESCAPED' if made > 40 else 'held', made)"
    ),
    "ignore signals": Hostile(
        "import signal, time\nfor number in range(1, 65):\n try: signal.signal(number, signal.SIG_IGN)\n"
        " except (OSError, ValueError): pass\nwhile True: pass",
        ("timeout",),
    ),
    "stop oneself": Hostile("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", ("timeout",)),
    "sleep for ever": Hostile("import time\nwhile True: time.sleep(1000)", ("timeout",)),
    "leave the group": Hostile(
        "import os, time\nos.setpgid(0, 0) if os.getpgrp() != os.getpid() else None\n"
        "pid = os.fork()\nif pid == 0:\n os.setsid()\n while True: time.sleep(10)\nwhile True: pass",
        ("timeout",),
    ),
}
