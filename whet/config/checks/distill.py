"""Checks of `algorithm.distill.*`; each yields sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from whet.config.checks.run import Check
from whet.config.schema import Config
from whet.config.schema.distill import DistillConfig
from whet.config.values import show

SECTION = "algorithm.distill"


def distill_problems(config: Config) -> Iterator[str]:
    """Yield a sentence for each key of distillation that nothing would read, or that does not go with the others."""
    distill = config.algorithm.distill
    if not distill.active:
        plain = DistillConfig()
        for each in fields(distill):
            if (value := getattr(distill, each.name)) != getattr(plain, each.name):
                yield (
                    f"{SECTION}.{each.name}={show(value)} has no effect without a teacher; set "
                    f"{SECTION}.model_path, or leave it out"
                )
        return
    if distill.use == "advantage" and distill.divergence != "reverse_kl":
        yield (
            f"{SECTION}.divergence={distill.divergence} needs all tokens of the vocabulary, but "
            f"{SECTION}.use=advantage knows the sampled ones, which estimate reverse_kl; set "
            "use=loss or divergence=reverse_kl"
        )
    if distill.model_paths and distill.model_path is None:
        yield f"{SECTION}.model_paths is for some data sources; set {SECTION}.model_path, which has all others"
    for source, name in distill.model_paths.items():
        if not isinstance(name, str) or not name:
            yield f"{SECTION}.model_paths.{source}={show(name)}: expected a model folder, a hub id or a built-in name"
    devices = config.trainer.n_gpus_per_node * config.trainer.nnodes
    if devices > 1:
        yield (
            f"{SECTION}.model_path: trainer.n_gpus_per_node x trainer.nnodes = {devices}, but distillation on several "
            "devices is not in this version yet; set both to 1"
        )


DISTILL_CHECKS: tuple[Check, ...] = (distill_problems,)
