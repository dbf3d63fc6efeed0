"""One reward, a server's address, and verl's managers."""

from __future__ import annotations

import pytest

from whet.config import check_config, check_files, load_config
from whet.config.files import anchored
from whet.errors import UserError
from whet.rewards.scorer import RewardScorer

BASE = ["worker.actor.model.model_path=org/model", "data.train_files=train.jsonl", "worker.rollout.n=4"]


def test_a_combination_is_read_and_its_files_are_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("")
    (tmp_path / "train.jsonl").write_text("{}")
    argv = [*BASE, "worker.reward.combine={gsm8k: 1.0, format: 0.1, mine.py:extra: 0.5}"]
    config = load_config(argv)
    check_config(config)
    check_files(config)
    assert anchored(config).worker.reward.parts == {"gsm8k": 1.0, "format": 0.1, f"{tmp_path}/mine.py:extra": 0.5}
    (tmp_path / "run.yaml").write_text(anchored(config).to_yaml())
    again = load_config([f"config={tmp_path / 'run.yaml'}"])
    assert again.worker.reward.parts == anchored(config).worker.reward.parts
    options = load_config([*argv, "worker.reward.reward_function_kwargs={mine.py:extra: {a: 1}}"]).worker.reward
    assert options.options_of("mine.py:extra") == {"a": 1}
    assert options.options_of("gsm8k") is None
    with pytest.raises(
        UserError, match=r"worker.reward.combine=\S*mien.py: there is no such file; did you mean mine.py"
    ):
        check_files(load_config([*BASE, "worker.reward.combine={mien.py:extra: 0.5}"]))


@pytest.mark.parametrize(("arguments", "message"), [
    (["reward_function=gsm8k", "url=http://a"], "worker.reward.reward_function and worker.reward.url are set"),
    (["combine={gsm8k: 1}", "url=http://a"], "worker.reward.combine and worker.reward.url are set"),
    (["url=http://a", "reward_function_kwargs={a: 1}"], "takes no options"),
    (["url=a:80"], "write it as http://host:port/path"), (["url=http://a:x"], "write it as"),
    (["url=file:///etc"], "write it as"),
    (["url=http://me:secret@host/"], "token_env"), (["manager=batch", "reward_type=sequential"], "contradict"),
])  # fmt: skip
def test_contradictions_are_named(arguments, message):
    config = load_config([*BASE, *(f"worker.reward.{each}" for each in arguments)])
    with pytest.raises(UserError, match=r"worker\.reward") as caught:
        check_config(config)
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_manager_of_verl_says_how_the_function_is_called(tmp_path):
    config = load_config([*BASE, "reward_model.reward_manager=batch"]).worker.reward
    assert config.manager == "batch"
    (tmp_path / "mine.py").write_text(
        "def main(rows): return [1.0] * len(rows)\ndef one(response, answer): return 1.0\n"
    )
    with RewardScorer(f"{tmp_path}/mine.py", config) as scorer:
        assert scorer.scores_batches()
    with (
        RewardScorer(f"{tmp_path}/mine.py:one", config) as scorer,
        pytest.raises(UserError, match="as a batch function"),
    ):
        scorer.scores_batches()
    with RewardScorer("gsm8k", config) as scorer:
        assert not scorer.scores_batches()
    with pytest.raises(UserError, match=r"reward_manager=primes.*did you mean prime"):
        load_config([*BASE, "reward_model.reward_manager=primes"])
