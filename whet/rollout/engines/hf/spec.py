"""The reference engine as configs name it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.rollout.spec import Capabilities, EngineSpec, Opening

if TYPE_CHECKING:
    from whet.rollout.engine import Engine

CAPABILITIES = Capabilities(shares_weights=True, concurrent=False, images=True, partial=True)


def _open(opening: Opening) -> Engine:
    from whet.rollout.engines.hf.engine import HFEngine

    return HFEngine(opening.policy, opening.tokenizer, opening.ends, opening.slots)


SPEC = EngineSpec(open=_open, capabilities=CAPABILITIES)
