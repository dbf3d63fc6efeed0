"""Two ranks that say where their job listens, and end well: run as a script by test_own_ray.py."""

from __future__ import annotations

import json
import os

import psutil
from distributed.workers import Worker

from whet.distributed import Placement, open_ray

if __name__ == "__main__":
    group = open_ray(Worker, Placement(per_node=2, device="cpu"))
    pids = [pid for _, pid in group.call("who")]
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    listening = [
        (each.laddr.ip, process.name())
        for process in processes
        for each in process.net_connections("inet")
        if each.status == psutil.CONN_LISTEN
    ]
    summary = {
        "sum": group.call("all_reduce", 1.0),
        "leads": [os.getpgid(pid) == pid for pid in pids],
        "listening": listening,
        "names": [process.name() for process in processes],
        "arguments": [argument for process in processes for argument in process.cmdline()],
        "token": os.environ["RAY_AUTH_TOKEN"],
    }
    group.close()
    print(json.dumps(summary), flush=True)
