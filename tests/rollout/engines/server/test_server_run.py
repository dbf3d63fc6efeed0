"""Runs whose engine is a server, here a stand-in: each step samples with the weights of the last."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from rollout.engines.server.stand_in import SGLangStandIn, TrtllmStandIn
from training.whet_process import SMALL

from whet.config import load_config
from whet.config.checks.train import check_config
from whet.errors import UserError
from whet.rollout.engines.server import client
from whet.tracking import read_metrics
from whet.training.job import train

QUICKSTART = Path(__file__).parents[4] / "examples/quickstart.yaml"
REWARD = """
def compute_score(reward_inputs):
    return [{"overall": len(set(each["response"])) / 8, "accuracy": 0.0} for each in reward_inputs]
"""
SIZES = (
    "data.max_prompt_length=96",
    "data.max_response_length=8",
    "worker.reward.num_cpus=1",
    "worker.actor.optim.lr=1e-3",
    "trainer.max_steps=3",
    "trainer.save_freq=-1",
    "trainer.val_freq=-1",
    "trainer.val_before_train=false",
)


@pytest.fixture
def folder(llama, tmp_path, monkeypatch) -> Path:
    """A working directory with a tiny model, and a few rows to train on and to validate."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(llama.path, tmp_path / "model")
    llama.tokenizer.save_pretrained(tmp_path / "model")
    rows = [{"problem": f"Sort these digits: {i} 2 1", "answer": f"1 2 {i}"} for i in range(3, 9)]
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    (tmp_path / "reward.py").write_text(REWARD)  # one that tells random responses apart: without it nothing is learned
    return tmp_path


@pytest.fixture
def server(llama) -> Iterator[SGLangStandIn]:
    stand_in = SGLangStandIn(llama.model(), llama.tokenizer)
    yield stand_in
    stand_in.close()


def _train(server, *more: str) -> list[dict[str, float]]:
    """Run with a server as the engine; returns the metrics of each line."""
    paths = ("data.train_files=rows.jsonl", "data.val_files=rows.jsonl", "worker.actor.model.model_path=model")
    rollout = ("worker.rollout.name=sglang", f"worker.rollout.server_address={server.address}")
    place = ("trainer.save_checkpoint_path=run", "worker.reward.reward_function=reward.py:compute_score")
    train(load_config([f"config={QUICKSTART}", *SMALL, *SIZES, *paths, *rollout, *place, *more]))
    return read_metrics(Path("run/metrics.jsonl"))


def _moved(server) -> float:
    """How far the server's weights are from those it was started with."""
    last = server.model.state_dict()
    return max(float((last[name] - first).abs().max()) for name, first in server.first.items())


def test_training_gives_the_server_the_weights_of_every_step(server, folder, monkeypatch) -> None:
    monkeypatch.setenv("WHET_SERVER_TOKEN", "secret")
    server.token = "secret"
    (folder / "weights").mkdir()
    lines = _train(server, "worker.rollout.server_folder=weights", "worker.rollout.free_cache_engine=true")
    versions = [body["weight_version"].rpartition("-")[2] for body in server.bodies("/update_weights_from_disk")]
    assert versions == ["0", "1", "2", "3"]
    assert len(lines) == 3
    for line in lines:  # the server's log-probs are the learner's, so its weights are
        assert line["rollout/log_prob_diff_max"] < 1e-3
    assert _moved(server) > 1e-3
    assert not list((folder / "weights").iterdir())
    assert not server.asleep


def test_adapters_reach_the_server_merged(server, folder) -> None:
    pytest.importorskip("peft")
    lines = _train(server, "worker.actor.model.lora.rank=4", "worker.actor.optim.lr=1e-2", "trainer.max_steps=2")
    assert all(line["rollout/log_prob_diff_max"] < 1e-3 for line in lines)
    assert _moved(server) > 1e-3


def test_a_server_that_restarts_stops_the_run(server, folder) -> None:
    update = server._update

    def update_and_restart(body):
        answer = update(body)
        if body["weight_version"].endswith("-1"):
            server.restart()
        return answer

    server._update = update_and_restart
    with pytest.raises(UserError, match="restarted"):
        _train(server)


def test_a_server_that_is_not_there_stops_the_run_before_it_begins(server, folder, monkeypatch) -> None:
    monkeypatch.setattr(client, "_WAITS", (0.01, 0.01))
    server.close()
    with pytest.raises(UserError, match=r"worker\.rollout\.server_address=http://127.* cannot be reached"):
        _train(server)
    assert not (folder / "run").exists()


def test_a_server_without_updates_validates(server, folder) -> None:
    other = TrtllmStandIn(server.model, server.tokenizer)
    name, address = "worker.rollout.name=trtllm", f"worker.rollout.server_address={other.address}"
    (line,) = _train(server, name, address, "trainer.val_only=true")
    other.close()
    assert line["val/accuracy"] == 0.0
    assert len(other.bodies("/v1/completions")) == 6 * 2
    assert not server.calls


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("name=sglang", r"worker\.rollout\.server_address is not set, but worker\.rollout\.name=sglang is a server"),
        ("name=sglang server_address=localhost:30000", r"server_address=localhost:30000: write it as http://host:port"),
        ("name=sglang server_address=http://h:x1", r"write it as http://host:port"),
        ("name=sglang server_address=http://gpu7:30000", r"server_folder is not set.*both machines see"),
        ("name=trtllm server_address=http://localhost:8000", r"name=trtllm: .* trainer\.val_only=true"),
        ("name=openai server_address=http://localhost:8000", r"name=openai: .* trainer\.val_only=true"),
        (
            "server_address=http://localhost:8000",
            r"server_address=\S+ is for openai or sglang or trtllm or vllm, but worker\.rollout\.name=native",
        ),
        ("free_cache_engine=true", r"free_cache_engine=true is for sglang"),
    ],
)
def test_configs_that_no_server_can_serve_are_refused(given: str, sentence: str) -> None:
    arguments = [f"worker.rollout.{each}" for each in given.split()]
    with pytest.raises(UserError, match=sentence):
        check_config(load_config([f"config={QUICKSTART}", *arguments]))


@pytest.mark.parametrize("address", ["http://localhost:30000", "http://127.0.0.1:30000", "http://[::1]:30000"])
def test_a_server_here_needs_no_folder(address: str) -> None:
    arguments = ["worker.rollout.name=sglang", f"worker.rollout.server_address={address}"]
    check_config(load_config([f"config={QUICKSTART}", *arguments]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [("worker.actor.model.lora.rank=4",), ("trainer.placement={rollout: 1, learn: 1}",)]
)
def test_the_first_of_several_ranks_speaks_to_the_server(server, folder, arguments: tuple[str, ...]) -> None:
    pytest.importorskip("ray")
    ranks = ("trainer.n_gpus_per_node=2", "trainer.device=cpu", "trainer.max_steps=2", "worker.actor.optim.lr=1e-2")
    lines = _train(server, *ranks, *arguments)
    versions = [body["weight_version"].rpartition("-")[2] for body in server.bodies("/update_weights_from_disk")]
    assert versions == ["0", "1", "2"]
    assert len(lines) == 2
    assert all(line["rollout/log_prob_diff_max"] < 1e-3 for line in lines)
    assert _moved(server) > 1e-3
