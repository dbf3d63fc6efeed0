"""Servers with OpenAI's completions as configs name them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.rollout.engines.server.config import KEYS, REQUESTS, address_problems, check_answers
from whet.rollout.spec import Capabilities, EngineSpec, Opening

if TYPE_CHECKING:
    from whet.rollout.engine import Engine

CAPABILITIES = Capabilities(updates=False, external=True)


def _open(opening: Opening) -> Engine:
    from whet.rollout.engines.openai.engine import OpenAIEngine
    from whet.rollout.engines.server.client import client_of

    requests = opening.config.worker.rollout.max_num_seqs or REQUESTS
    return OpenAIEngine(client_of(opening.config), opening.tokenizer, opening.ends, requests)


SPEC = EngineSpec(
    open=_open, capabilities=CAPABILITIES, keys=KEYS, problems=address_problems, check_reachable=check_answers
)
