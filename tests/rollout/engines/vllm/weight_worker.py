"""A process that takes weights as vLLM's worker does, and keeps them: HOST PORT TOKEN VERSION DEVICE."""

from __future__ import annotations

import json
import socket
import sys
import time

import torch

from whet.rollout.engines.vllm.settings import CHILD

sys.path.append(str(CHILD))
from whet_vllm_extension import Stream

if __name__ == "__main__":
    host, port, token, version, device = sys.argv[1:]
    torch.zeros(1, device=device)
    begin = time.perf_counter()
    with socket.create_connection((host, int(port))) as connection:
        stream = Stream(connection, token, torch.empty(0, device=device).device)
        taken = dict(stream)
        received = stream.received(version)
    seconds = time.perf_counter() - begin
    sums = {name: float(tensor.double().sum()) for name, tensor in taken.items()}
    print(json.dumps({"received": received | {"version": version}, "seconds": seconds, "sums": sums}))
