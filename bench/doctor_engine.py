"""An engine that reports other log-probs than those it sampled with, for bench/doctor.py."""

from __future__ import annotations

from whet.rollout.engines.hf.spec import CAPABILITIES
from whet.rollout.spec import EngineSpec, Opening


def _open(opening: Opening):
    from whet.rollout.engines.hf.engine import HFEngine

    class Drifted(HFEngine):
        def generate(self, *args, **kwargs):
            samples = super().generate(*args, **kwargs)
            for sample in samples:
                for segment in sample.segments:
                    segment.log_probs = [1.5 * value - 0.3 for value in segment.log_probs]
            return samples

    return Drifted(opening.policy, opening.tokenizer, opening.ends, opening.slots)


SPEC = EngineSpec(open=_open, capabilities=CAPABILITIES)
