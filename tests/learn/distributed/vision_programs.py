"""What each rank does in the tests of sharded vision-language models; the same lines run in one process to compare."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from learn.distributed.programs import Case, learner_of, spread, update
from model.tiny_vision import EOS, mixed_samples, tiny_vision
from tiny_models import tiny_tokenizer
from torch import Tensor
from transformers import PreTrainedModel

from whet.learn.full_state import full_weights
from whet.learn.value_head import ValueModel
from whet.model.modality import freeze_tower
from whet.model.whole import full, whole
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.engine import NativeEngine
from whet.types import Sample


def model_of(case: Case) -> PreTrainedModel:
    """The same random model on every rank, with heads enough to be divided."""
    return tiny_vision(case.family, head_dim=16 // case.tensor)


def few_images(case: Case) -> list[Sample]:
    """Samples of which one prompt alone shows an image: with two ranks, one has none."""
    samples = mixed_samples(tiny_vision(case.family).config, n=2)
    return [s for s in samples if s.prompt.uid in ("row:1", "row:3", "row:6")]


def train(cases: list[tuple[Case, bool]]) -> list[dict[str, Any]]:
    """Gradients, weights, log-probs and samples of a step, with a frozen tower or not."""
    found = []
    for case, frozen in cases:
        model = model_of(case)
        if frozen:
            freeze_tower(model)
        passes: list[int] = []
        model.base_model.visual.register_forward_hook(lambda _m, given, _o, kept=passes: kept.append(len(given[0])))
        learner = learner_of(spread(model, case.fsdp, None, case.tensor, case.sequence), case)
        gradients: list[list[Tensor]] = []
        learner.optimizer.register_step_pre_hook(
            lambda optimizer, *_, kept=gradients: kept.append(
                [full(p.grad).clone() for group in optimizer.param_groups for p in group["params"]]
            )
        )
        samples = few_images(case)
        before = learner.log_probs(samples)
        metrics = update(learner, case, 1, samples)
        in_passes = list(passes)
        after = learner.log_probs(samples)
        engine = NativeEngine(learner.model, tiny_tokenizer(), frozenset({EOS}), 4)
        rank = dist.get_rank() if dist.is_initialized() else 0
        with whole(learner.model):
            prompt = samples[rank * 2 + 1].prompt  # text on the first rank, images on the second
            drawn = engine.generate([prompt], SamplingParams(n=2, max_tokens=5, temperature=1.0), [7])
        found.append(
            {
                "metrics": metrics,
                "gradients": gradients,
                "weights": full_weights(learner.model),
                "values": [before, after],
                "passes": in_passes,
                "states": len(learner.optimizer.state),
                "drawn": [(s.prompt.uid, s.ids, s.log_probs) for s in drawn],
            }
        )
    return found


def values(case: Case) -> list[Tensor]:
    """Values by a critic with eyes, of text and then of images; of two ranks each has one of them."""
    model = ValueModel(tiny_vision(case.family).base_model)
    torch.nn.init.ones_(model.head.weight)
    spread(model, case.fsdp)
    parts = [few_images(case)[:2], few_images(case)[2:4]]
    mine = parts[dist.get_rank() :][:1] if dist.is_initialized() else parts
    with torch.no_grad():
        return [model.response_values(samples, True) for samples in mine]
