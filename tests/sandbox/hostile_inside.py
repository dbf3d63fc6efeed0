# ruff: noqa: E501  (programs as one reads them)
"""Programs that try the kernel's other calls, take more than their limits, or search what they were started with."""

from __future__ import annotations

from sandbox.hostile_outside import CALL, Hostile, refused

INSIDE: dict[str, Hostile] = {
    # the kernel's other doors
    "unshare": Hostile(refused("call(272, 97, 0x10000000)")),
    "clone a user namespace": Hostile(refused("call(56, 220, 0x10000000 | 17, 0, 0, 0, 0)")),
    "setns": Hostile(refused("call(308, 268, 0, 0)")),
    "mount": Hostile(refused("call(165, 40, b'none', b'/box', b'tmpfs', 0, 0)")),
    "new mount calls": Hostile(refused("call(430, 430, b'tmpfs', 0)")),
    "chroot": Hostile("import os\ntry:\n os.chroot('.'); print('ESCAPED')\nexcept OSError: print('held')"),
    "keys of the kernel": Hostile(refused("call(250, 219, 0, -3, 1)")),
    "io_uring": Hostile(refused("call(425, 425, 8, ctypes.create_string_buffer(200))")),
    "bpf": Hostile(refused("call(321, 280, 5, ctypes.create_string_buffer(200), 72)")),
    "userfaultfd": Hostile(refused("call(323, 282, 1)")),
    "perf events": Hostile(refused("call(298, 241, ctypes.create_string_buffer(200), 0, -1, -1, 0)")),
    "kexec": Hostile(refused("call(246, 104, 0, 0, 0, 0)")),
    "load a module": Hostile(refused("call(313, 273, 0, b'', 0)")),
    "set the clock": Hostile(
        "import time\ntry:\n time.clock_settime(time.CLOCK_REALTIME, 0); print('ESCAPED')\nexcept OSError: print('held')"
    ),
    "host name": Hostile(
        "import socket\ntry:\n socket.sethostname('x'); print('ESCAPED')\nexcept OSError: print('held')"
    ),
    "shared memory that stays": Hostile(refused("call(29, 194, 4711, 4096, 0o1666)")),
    "message queue that stays": Hostile(refused("call(240, 180, b'left', 0o102, 0o600, 0)")),
    "memory file and exec": Hostile(
        "import os\ntry:\n fd = os.memfd_create('x'); os.write(fd, b'#!/bin/sh\\necho ESCAPED\\n'); os.execve(fd, ['x'], {})\n"
        "except OSError: print('held')"
    ),
    "lift the filter": Hostile(
        CALL + "libc.prctl(38, 0, 0, 0, 0)\nlibc.prctl(22, 0, 0, 0, 0)\n"
        "print('ESCAPED' if call(272, 97, 0x10000000)[0] == 0 else 'held')"
    ),
    "answer the filter's questions": Hostile(
        "import fcntl\nfor fd in range(3, 256):\n"
        " try:\n  fcntl.ioctl(fd, 0xC0502100, bytes(80)); print('ESCAPED', fd)\n except OSError: pass"
    ),
    "32-bit and x32 calls": Hostile(refused("call(0x40000000 + 39, 0x40000000, 0)")),
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
    "lock memory": Hostile(refused("call(151, 230, 3)")),
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
