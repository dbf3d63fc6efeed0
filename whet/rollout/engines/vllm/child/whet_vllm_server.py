"""vLLM's HTTP server, tied to the trainer: `python whet_vllm_server.py FD FLAGS...` ends when that pipe closes."""

from __future__ import annotations

import os
import runpy
import sys
import threading

from whet_vllm_child import end_group


def _end_with(pipe: int) -> None:
    os.read(pipe, 1)  # nothing is ever written: it returns when the trainer is gone
    end_group()


if __name__ == "__main__":
    threading.Thread(target=_end_with, args=(int(sys.argv.pop(1)),), daemon=True).start()
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
