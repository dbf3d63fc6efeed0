"""What the quickstart imports: only what it uses, by the count of bench/imports.py."""

from __future__ import annotations

from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
QUICK = (
    "trainer.val_before_train=false",
    "trainer.val_freq=-1",
    "trainer.save_freq=-1",
    "trainer.device=cpu",
    "data.rollout_batch_size=4",
    "worker.actor.global_batch_size=4",
)
# Engines, Ray, reward models, judges, vision, VPPO, LoRA, the critic, the reference, ranks and resuming are for those
# who ask for them.
FOREIGN = (
    "whet.rollout.engines.hf",
    "whet.rollout.engines.vllm",
    "whet.rollout.engines.server",
    "whet.rollout.engines.sglang",
    "whet.rollout.engines.openai",
    "whet.rollout.engines.trtllm",
    "whet.distributed",
    "whet.sandbox",
    "whet.checkpoint.judging",
    "whet.training.rank",
    "whet.training.remote",
    "whet.model.vision",
    "whet.model.processor",
    "whet.data.images",
    "whet.data.videos",
    "whet.data.masking",
    "whet.training.perception",
    "whet.training.token_selection",
    "whet.training.correction",
    "whet.training.values",
    "whet.algos.correction",
    "whet.learn.critic",
    "whet.learn.sequence_parallel",
    "whet.learn.sharding",
    "whet.learn.reference",
    "whet.learn.distributions",
    "whet.learn.full_state",
    "whet.learn.memory",
    "whet.learn.prefix_tree",
    "whet.model.hub",
    "whet.model.routing",
    "whet.rollout.batches",
    "whet.model.lora",
    "whet.model.torch_file",
    "whet.algos.guard",
    "whet.config.loading.aliases",
    "whet.config.stages",
    "whet.data.arrow",
    "whet.data.hub",
    "whet.rewards.keeper",
    "whet.rewards.background",
    "whet.rewards.judges",
    "whet.rewards.mixed",
    "whet.rewards.models",
    "whet.rewards.protocol",
    "whet.rewards.steps",
    "whet.config.checks.asynchronous",
    "whet.config.checks.correction",
    "whet.config.checks.devices",
    "whet.config.checks.distill",
    "whet.config.checks.feature_files",
    "whet.config.checks.missing",
    "whet.config.checks.numerics",
    "whet.config.checks.recipes",
    "whet.config.checks.reward",
    "whet.config.checks.reward_terms",
    "whet.config.loading.interpolation",
    "whet.config.loading.wrong_names",
    "whet.training.judge",
    "whet.training.reward_model",
    "whet.training.reward_terms",
    "whet.training.continuity",
    "whet.training.extensions",
    "whet.serving",
    "whet.evals",
)


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import imports

    return imports


def test_lines_of_code_are_neither_blank_nor_comments_nor_docstrings(imports) -> None:
    source = '''"""A module.

Its docstring."""

import os  # a comment behind code


class A:
    """One line."""

    # a comment
    text = """two
lines"""

    def f(self):
        """Docs."""
        return (
            1
        )
'''
    assert imports.lines_of_code(source) == 8


def test_the_quickstart_imports_what_it_uses(imports, quickstart, tmp_path) -> None:
    found = imports.imported(imports.quickstart([*QUICK], str(tmp_path / "run")))
    foreign = [name for name in found if any(name == each or name.startswith(f"{each}.") for each in FOREIGN)]
    assert not foreign
    lines = sum(imports.lines_of_code(Path(file).read_text()) for file in found.values())
    assert len(found) <= 198
    assert lines <= 14_600
