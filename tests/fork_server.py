"""The server from which tests fork processes: it has imported, once, what each of them would import anew.

There is one in a process, so what it loads is listed here and nowhere else. It must start no thread: forks have none.
"""

from __future__ import annotations

import multiprocessing

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    [
        "torch.distributed.fsdp",
        "transformers.models.llama.modeling_llama",
        "transformers.models.qwen2_5_vl.modeling_qwen2_5_vl",
        "whet.cli",
        "whet.model.processor",
        "whet.rollout.engines.native.engine",
        "whet.training.job",
        "learn.samples",
    ]
)
