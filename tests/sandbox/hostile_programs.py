"""Programs that try to leave a sandbox, stay after it, or take more than their limits.

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


_CALL = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(x86, arm, *arguments):
    number = x86 if os.uname().machine == "x86_64" else arm
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    return result, ctypes.get_errno()
"""
_ALIVE = """
def alive(pid):
    try:
        os.kill(pid, 0)
        return True
    except OSError:
        return False
"""


def _refused(call: str) -> str:
    """A program whose system call must fail."""
    return f"{_CALL}\nresult, error = {call}\nprint('ESCAPED' if result >= 0 else 'held', result, error)\n"


PROGRAMS: dict[str, Hostile] = {
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
        "import os\ntry: print('ESCAPED' if os.listdir(T['folder']) else 'held')\nexcept OSError: print('held')"
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
    "file handles": Hostile(_refused("call(304, 265, -100, ctypes.create_string_buffer(200), 0)")),
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
    "trace the parent": Hostile(_refused("call(101, 117, 16, os.getppid(), 0, 0)")),
    "read the parent's memory": Hostile(
        _CALL
        + "buffer = ctypes.create_string_buffer(64)\nvector = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 64)\n"
        "far = (ctypes.c_size_t * 2)(id(None), 64)\n"
        "print('ESCAPED' if call(310, 270, os.getppid(), vector, 1, far, 1, 0)[0] >= 0 else 'held')"
    ),
    "take a descriptor of the parent": Hostile(_refused("call(438, 438, 3, 0, 0)")),
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
    # the kernel's other doors
    "unshare": Hostile(_refused("call(272, 97, 0x10000000)")),
    "clone a user namespace": Hostile(_refused("call(56, 220, 0x10000000 | 17, 0, 0, 0, 0)")),
    "setns": Hostile(_refused("call(308, 268, 0, 0)")),
    "mount": Hostile(_refused("call(165, 40, b'none', b'/box', b'tmpfs', 0, 0)")),
    "new mount calls": Hostile(_refused("call(430, 430, b'tmpfs', 0)")),
    "chroot": Hostile("import os\ntry:\n os.chroot('.'); print('ESCAPED')\nexcept OSError: print('held')"),
    "keys of the kernel": Hostile(_refused("call(250, 219, 0, -3, 1)")),
    "io_uring": Hostile(_refused("call(425, 425, 8, ctypes.create_string_buffer(200))")),
    "bpf": Hostile(_refused("call(321, 280, 5, ctypes.create_string_buffer(200), 72)")),
    "userfaultfd": Hostile(_refused("call(323, 282, 1)")),
    "perf events": Hostile(_refused("call(298, 241, ctypes.create_string_buffer(200), 0, -1, -1, 0)")),
    "kexec": Hostile(_refused("call(246, 104, 0, 0, 0, 0)")),
    "load a module": Hostile(_refused("call(313, 273, 0, b'', 0)")),
    "set the clock": Hostile(
        "import time\ntry:\n time.clock_settime(time.CLOCK_REALTIME, 0); print('ESCAPED')\nexcept OSError: print('held')"
    ),
    "host name": Hostile(
        "import socket\ntry:\n socket.sethostname('x'); print('ESCAPED')\nexcept OSError: print('held')"
    ),
    "shared memory that stays": Hostile(_refused("call(29, 194, 4711, 4096, 0o1666)")),
    "message queue that stays": Hostile(_refused("call(240, 180, b'left', 0o102, 0o600, 0)")),
    "memory file and exec": Hostile(
        "import os\ntry:\n fd = os.memfd_create('x'); os.write(fd, b'#!/bin/sh\\necho ESCAPED\\n'); os.execve(fd, ['x'], {})\n"
        "except OSError: print('held')"
    ),
    "lift the filter": Hostile(
        _CALL + "libc.prctl(38, 0, 0, 0, 0)\nlibc.prctl(22, 0, 0, 0, 0)\n"
        "print('ESCAPED' if call(272, 97, 0x10000000)[0] == 0 else 'held')"
    ),
    "answer the filter's questions": Hostile(
        "import fcntl\nfor fd in range(3, 256):\n"
        " try:\n  fcntl.ioctl(fd, 0xC0502100, bytes(80)); print('ESCAPED', fd)\n except OSError: pass"
    ),
    "32-bit and x32 calls": Hostile(_refused("call(0x40000000 + 39, 0x40000000, 0)")),
    "become root": Hostile(
        "import os\nfor change in (lambda: os.setuid(0), lambda: os.setresuid(0, 0, 0), lambda: os.setgroups([0])):\n"
        " try:\n  change(); print('ESCAPED')\n except OSError: pass\nif os.geteuid() == 0: print('ESCAPED')"
    ),
    "set-id programs": Hostile(
        "import os, subprocess\nfor tool in ('su', 'mount', 'passwd', 'sudo'):\n"
        " path = f'/usr/bin/{tool}'\n if os.path.exists(path):\n"
        "  ran = subprocess.run([path, '--version'], capture_output=True, stdin=subprocess.DEVNULL)\n"
        "print('ESCAPED' if subprocess.run(['/usr/bin/id', '-u'], capture_output=True, text=True).stdout == '0\\n' else 'held')"
    ),
    # resources
    "endless output": Hostile("while True: print('x' * 1000)", ("output_limit",)),
    "endless stderr": Hostile("import os\nwhile True: os.write(2, b'x' * 65536)", ("output_limit",)),
    "huge allocation": Hostile("x = bytearray(10 ** 12)", ("memory_limit",)),
    "growing memory": Hostile("x = []\nwhile True: x.append(bytearray(1 << 20))", ("memory_limit",)),
    "memory of many processes": Hostile(
        "import os, time\nfor _ in range(6):\n if os.fork() == 0:\n  x = bytearray(b'x' * (60 << 20)); time.sleep(30)\n"
        "time.sleep(30)",
        ("memory_limit",),
    ),
    "anonymous shared memory": Hostile(
        "import mmap, os\nkeep = []\nfor _ in range(64):\n m = mmap.mmap(-1, 16 << 20)\n"
        " for at in range(0, 16 << 20, 4096): m[at] = 1\n keep.append(m)\nprint('ESCAPED')",
    ),
    "huge sparse file": Hostile(
        "try:\n f = open('big', 'wb'); f.truncate(1 << 40); print('ESCAPED')\nexcept OSError: print('held')"
    ),
    "fill the disk": Hostile(
        "import os, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nwritten = 0\nname = 0\n"
        "try:\n while written < 2 << 30:\n  with open(str(name), 'wb') as f:\n"
        "   for _ in range(8): written += f.write(bytes(1 << 20))\n  name += 1\n print('ESCAPED')\nexcept OSError: print('held')",
        most_seconds=10.0,
    ),
    "many files": Hostile(
        "import os\nmade = 0\ntry:\n for at in range(60000):\n  os.close(os.open(f'f{at}', os.O_CREAT)); made += 1\n"
        "except OSError: pass\nprint(made)",
        most_seconds=10.0,
    ),
    "deep folders": Hostile(
        "import os\ntry:\n for _ in range(3000):\n  os.mkdir('d'); os.chdir('d')\nexcept OSError: pass\nprint('deep')"
    ),
    "folders without permissions": Hostile(
        "import os\nos.makedirs('a/b/c'); open('a/b/c/f', 'w').close(); os.mkfifo('a/pipe')\n"
        "for path in ('a/b/c', 'a/b', 'a'): os.chmod(path, 0)\nos.chmod('.', 0)"
    ),
    "raise limits": Hostile(
        "import resource\nfor kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_NOFILE, resource.RLIMIT_CORE):\n"
        " try:\n  resource.setrlimit(kind, (-1, -1)); print('ESCAPED')\n except (OSError, ValueError): pass"
    ),
    "lock memory": Hostile(_refused("call(151, 230, 3)")),
    "core dump": Hostile("import os\nos.abort()", ("signal",)),
    "crash": Hostile("import ctypes\nctypes.string_at(8)", ("signal",)),
    "deep recursion": Hostile(
        "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(): f()\nf()", ("signal", "error", "memory_limit", "timeout")
    ),
    "open every descriptor": Hostile(
        "import os\nfds = []\ntry:\n while True: fds.append(os.dup(0))\nexcept OSError: pass\n"
        "print('ESCAPED' if len(fds) > 300 else 'held')"
    ),
    # what it was started with
    "environment": Hostile(
        "import os\nprint('ESCAPED' if any('SECRET' in k + v for k, v in os.environ.items()) else os.environ)"
    ),
    "environment in memory": Hostile(
        "import ctypes\nlibc = ctypes.CDLL(None)\nenv = ctypes.POINTER(ctypes.c_char_p).in_dll(libc, 'environ')\nat = 0\n"
        "while env and env[at]:\n if b'SECRET' in env[at]: print('ESCAPED')\n at += 1"
    ),
    "inherited descriptors": Hostile(
        "import os\nfor fd in range(3, 1024):\n try:\n  os.fstat(fd); print('ESCAPED', fd)\n except OSError: pass"
    ),
    "write to its input": Hostile("import os\ntry:\n os.write(0, b'x'); print('wrote')\nexcept OSError: print('held')"),
    "close everything": Hostile("import os\nos.closerange(0, 256)", ("ok", "error")),
    "frames of the zygote": Hostile(
        "import gc, sys\nframe = sys._getframe()\nseen = []\nwhile frame:\n seen += [str(v) for v in frame.f_locals.values()]\n"
        " frame = frame.f_back\ntext = ' '.join(seen) + ' '.join(str(o)[:2000] for o in gc.get_objects() if isinstance(o, (dict, list)))\n"
        "print('ESCAPED' if 'the-previous-' + 'program' in text else 'held')"
    ),
    "patch the interpreter": Hostile(
        "import builtins, json, os, sys\nsys.modules.clear() if False else None\njson.loads = None\nos.fork = None\n"
        "builtins.compile = None\nsys.stdout.write('patched')\nbuiltins.print = None",
        ("ok", "error"),
    ),
    "exit functions": Hostile("import atexit, time\natexit.register(time.sleep, 100)", ("timeout",)),
    "thread that stays": Hostile(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(100,)).start()", ("timeout",)
    ),
}
