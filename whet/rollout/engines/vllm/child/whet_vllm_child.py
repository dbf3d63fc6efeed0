"""The child process: `python whet_vllm_child.py FD`, an engine at the other end of that socket.

It leads a process group of its own, and takes vLLM's workers with it when the trainer is gone.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys

from whet_vllm_host import serve


def end_group() -> None:
    """End this process and all it started, at once."""
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    gc.disable()  # it would run in the middle of decoding; the host collects when weights are exchanged
    well = serve(socket.socket(fileno=int(sys.argv[1])), on_hangup=end_group)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if well else 1)  # vLLM's threads may outlast its shutdown
