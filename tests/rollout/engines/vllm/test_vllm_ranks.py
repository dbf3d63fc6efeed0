"""A real vLLM for every rank, or on devices of its own: each samples with the weights of the ranks that learn."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rollout.engines.vllm.test_vllm_run import QUICKSTART, SIZES
from tiny_models import Tiny
from training.whet_process import SMALL

from whet.config import load_config
from whet.tracking import read_metrics
from whet.training.job import train


@pytest.mark.parametrize(
    "arguments",
    [(), ("trainer.placement={rollout: 1, learn: 1}", "worker.actor.model.lora.rank=4")],
    ids=["colocated", "apart with adapters"],
)
def test_ranks_give_their_weights_to_vllm(
    vllm_python: str,
    model_of: Callable[..., Tiny],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
) -> None:
    pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    rows = [{"problem": f"Sort these digits: {i} 2 1", "answer": f"1 2 {i}"} for i in range(3, 9)]
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    (tmp_path / "reward.py").write_text(
        "def score(each):\n    return {'overall': float(len(each['response'])), 'accuracy': 0.0}\n"
    )
    keys = (
        "data.train_files=rows.jsonl",
        "data.val_files=rows.jsonl",
        "trainer.save_checkpoint_path=run",
        "trainer.n_gpus_per_node=2",
        "trainer.device=cpu",
        f"worker.actor.model.model_path={model_of('tied llama').path}",
        f"worker.rollout.python={vllm_python}",
        "worker.reward.reward_function=reward.py:score",
        "worker.reward.reward_type=sequential",
    )
    train(load_config([f"config={QUICKSTART}", *SMALL, *SIZES, *keys, *arguments]))
    steps = read_metrics(Path("run/metrics.jsonl"))
    assert [line["step"] for line in steps] == [1, 2, 3]
    for line in steps:
        assert line["actor/grad_norm"] > 0
        # The learner scores the samples anew: had vLLM other weights than the learner's, these would not be close.
        assert line["rollout/log_prob_diff_max"] < 1e-3
    logs = sorted(path.name for path in Path("run").glob("rollout_*.log"))
    assert logs == (["rollout_0.log"] if arguments else ["rollout_0.log", "rollout_1.log"])
