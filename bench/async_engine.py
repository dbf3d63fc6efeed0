"""The native engine with response lengths as reasoning models have them: each prompt has a mean length of its own.

`worker.rollout.name=bench/async_engine.py:SPEC`. With random weights every token is about as likely as any other, so a
set of ids that end a response makes its length geometric. Here the size of the set differs from prompt to prompt, so
that mean lengths are lognormal (median `MEDIAN` tokens, sigma 1.3): the 99th percentile is more than ten times the
median.
"""

from __future__ import annotations

import math
import os
import random
from dataclasses import replace

from whet.rollout.engine import Engine, SamplingParams, Start
from whet.rollout.engines.native.engine import NativeEngine
from whet.rollout.engines.native.spec import SPEC as NATIVE
from whet.rollout.spec import EngineSpec, Opening
from whet.types import Sample

MEDIAN = float(os.environ.get("WHET_BENCH_MEDIAN", "250"))
SIGMA = 1.3


class LongTailEngine(NativeEngine):
    """Ends responses by ids that depend on the group of a sample."""

    group = 8  # samples of a prompt
    vocabulary = 0

    async def sample(self, prompt: Start, params: SamplingParams, sample_id: int = 0) -> list[Sample]:
        """Return n samples of one start whose mean length belongs to their group."""
        mean = MEDIAN * math.exp(SIGMA * random.Random(sample_id // self.group).gauss(0.0, 1.0))
        ends = tuple(range(3, 3 + max(1, round(self.vocabulary / max(mean, 2.0)))))
        return await super().sample(prompt, replace(params, stop_ids=ends), sample_id)


def _open(opening: Opening) -> Engine:
    rollout = opening.config.worker.rollout
    engine = LongTailEngine(
        opening.policy,
        opening.tokenizer,
        opening.ends,
        opening.slots,
        rollout.max_num_batched_tokens,
        max_model_len=opening.longest,
        memory_share=rollout.gpu_memory_utilization,
    )
    engine.group, engine.vocabulary = rollout.n, opening.policy.config.vocab_size
    return engine


SPEC = EngineSpec(open=_open, capabilities=NATIVE.capabilities)
