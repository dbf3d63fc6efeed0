"""Effective configs of other systems' commands: their defaults, files, interpolations and arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from whet.compat.compose import Composed
from whet.compat.systems import SYSTEMS

NAME = "actor_rollout_ref.rollout.name=vllm"


def composed(
    *arguments: str, system: str = "verl", module: str = "verl.trainer.main_ppo", folder: Path = Path(".")
) -> Composed:
    entry = SYSTEMS[system].entry(module)
    assert entry is not None
    assert entry.compose is not None
    return entry.compose(list(arguments), folder)


def test_arguments_move_the_keys_that_follow_them() -> None:
    values = composed(NAME, "data.max_prompt_length=7", "actor_rollout_ref.actor.ppo_mini_batch_size=3").values
    assert values["actor_rollout_ref.rollout.prompt_length"] == 7
    assert values["critic.ppo_mini_batch_size"] == 3
    assert values["trainer.default_local_dir"] == "checkpoints/verl_examples/gsm8k"


@pytest.mark.parametrize(
    ("argument", "word"),
    [
        ("data.no_such_key=1", "no key data.no_such_key"),
        ("+data.shuffle=True", "is there already"),
        ("~data.no_such_key", "no such key"),
        ("data.train_files=~/x", "does not read"),
        ("actor_rollout_ref.rollout.engine_kwargs.vllm.x=1", "no key"),
        ("some/group=x", "no group"),
    ],
)
def test_what_the_original_refuses_has_a_reason(argument: str, word: str) -> None:
    found = composed(NAME, argument)
    assert len(found.refused) == 1
    assert word in found.refused[0]


@pytest.mark.parametrize(
    "argument",
    [
        "+data.new=1",
        "++data.shuffle=False",
        "~data.shuffle",
        "+data.apply_chat_template_kwargs.enable_thinking=False",
        "+trainer.max_actor_ckpt_to_keep=3",  # null there, so that it may be "added"
        "data.custom_cls={path: x.py}",
        "hydra.run.dir=x",
        "trainer.experiment_name=${now:%Y-%m-%d}_x",
        "reward.custom_reward_function.path=x.py",  # of a later version
        "actor_rollout_ref.actor.clip_cov_ratio=0.1",  # before it was policy_loss.clip_cov_ratio
        "model_engine=megatron",
        "hydra/job_logging=disabled",
        "trainer.profile_steps=[1,2]",  # of an earlier version
        "actor_rollout_ref.rollout.engine_kwargs.vllm.disable_mm_preprocessor_cache=True",
    ],
)
def test_what_the_original_takes(argument: str) -> None:
    assert composed(NAME, argument).refused == []


def test_without_an_engine_the_default_of_earlier_versions_is_taken() -> None:
    found = composed()
    assert (found.refused, found.values["actor_rollout_ref.rollout.name"]) == ([], "vllm")
    assert "is not given" in found.notes[0]


def test_files_of_the_user_are_read_with_their_defaults_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPAT_LENGTH", "9")
    (tmp_path / "mine.yaml").write_text(
        "defaults:\n  - ppo_trainer\n  - more\n  - _self_\n"
        "data:\n  max_prompt_length: ${oc.decode:${oc.env:COMPAT_LENGTH}}\n"
        "actor_rollout_ref:\n  rollout:\n    name: vllm\n"
    )
    (tmp_path / "more.yaml").write_text("data:\n  train_batch_size: 5\n  max_prompt_length: 1\n")
    found = composed(f"--config-path={tmp_path}", "--config-name=mine", "trainer.nnodes=2")
    assert found.refused == []
    assert found.values["data.max_prompt_length"] == 9
    assert found.values["data.train_batch_size"] == 5
    assert found.values["trainer.total_epochs"] == 30
    assert {"data.train_batch_size", "trainer.nnodes"} <= found.given.keys()


def test_a_checkout_in_the_folder_brings_its_edited_files(tmp_path: Path) -> None:
    config = tmp_path / "verl" / "trainer" / "config"
    (config / "data").mkdir(parents=True)
    (config / "ppo_trainer.yaml").write_text(
        "defaults:\n  - data@data: mine\n  - reward_manager@reward_manager\n"
        "  - actor@actor_rollout_ref.actor: dp_actor\n"
        "  - _self_\ntrainer:\n  total_epochs: 3\n  nnodes: 1\n"
    )
    (config / "data" / "mine.yaml").write_text("_target_: x.Y\ntrain_batch_size: 7\n")
    (config / "reward_manager.yaml").write_text("name: dapo\n")
    (config / "mine.yaml").write_text("defaults: [ppo_trainer]\ncritic:\n  optim:\n    lr: 1e-3\n")
    found = composed(NAME, folder=tmp_path)
    assert found.refused == []
    changed = {key: value for key, value in found.given.items() if key != "actor_rollout_ref.rollout.name"}
    assert changed == {"trainer.total_epochs": 3, "data.train_batch_size": 7, "reward_manager.name": "dapo"}
    assert composed(NAME, "trainer.total_epochs=4", folder=tmp_path).values["trainer.total_epochs"] == 4
    own = composed(NAME, "--config-name=mine", folder=tmp_path)  # beside the main, as Hydra looks for it
    assert (own.values["critic.optim.lr"], own.given["critic.optim.lr"]) == (1e-3, 1e-3)  # YAML 1.1 has a text there


def test_easyr1_reads_its_yaml_over_its_dataclasses(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("data:\n  prompt_key: q\nworker:\n  rollout:\n    n: 3\n")
    found = composed(
        "config=c.yaml", "worker.rollout.n=4", system="easyr1", module="verl.trainer.main", folder=tmp_path
    )
    assert (found.values["data.prompt_key"], found.values["worker.rollout.n"]) == ("q", 4)
    assert found.values["worker.rollout.tensor_parallel_size"] == 2
    derived = composed("worker.ref.dynamic_batching=false", system="vppo", module="verl.trainer.main")
    assert derived.refused == []  # a field of its dataclasses, which VPPO-RL's own file sets
    wrong = composed("+worker.rollout.n=4", "trainer.total_epochs=", system="easyr1", module="verl.trainer.main")
    assert len(wrong.refused) == 2


def test_a_checkout_decides_which_keys_its_system_has(tmp_path: Path) -> None:
    code = tmp_path / "code"
    config = code / "verl" / "trainer" / "config"  # of an early verl, with keys of a fork
    config.mkdir(parents=True)
    (config / "ppo_trainer.yaml").write_text(
        "data:\n  max_obs_length: 5\n  shuffle: true\nretriever:\n  url: http://127.0.0.1:1\n  cache: false\n"
        "trainer:\n  total_epochs: 30\n  default_hdfs_dir: ~/copies\n"
    )
    found = composed(NAME, "data.max_obs_length=7", "+trainer.val_only=True", folder=code)
    assert found.refused == []
    assert found.own == {"data.max_obs_length", "retriever.url", "retriever.cache"}
    assert (found.values["data.max_obs_length"], found.values["retriever.cache"]) == (7, False)
    assert composed(NAME, "+data.shuffle=False", folder=code).refused != []  # which this file has
    assert composed(NAME, "retriever.url=x", folder=config).refused == []  # from a folder of the checkout
    assert composed(NAME, "retriever.url=x", folder=tmp_path).refused == []  # and from the one above it


def test_the_file_of_a_recipe_is_read_over_the_checkouts_own(tmp_path: Path) -> None:
    for place, text in {
        "verl/trainer": "actor_rollout_ref:\n  actor:\n    k_percent: 0.2\ntrainer:\n  nnodes: 3\n",
        "recipe/dapo": "hydra:\n  searchpath: [file://verl/trainer/config]\ndefaults: [ppo_trainer, _self_]\n",
    }.items():
        config = tmp_path / place / "config"
        config.mkdir(parents=True)
        (config / ("ppo_trainer.yaml" if "verl" in place else "dapo_trainer.yaml")).write_text(text)
    found = composed(NAME, "actor_rollout_ref.actor.k_percent=1", module="recipe.dapo.main_dapo", folder=tmp_path)
    assert found.refused == []
    assert (found.own, found.values["trainer.nnodes"]) == ({"actor_rollout_ref.actor.k_percent"}, 3)


def test_names_of_earlier_easyr1_and_of_forks(tmp_path: Path) -> None:
    def easyr1(*arguments: str) -> Composed:
        return composed(*arguments, system="easyr1", module="verl.trainer.main", folder=tmp_path)

    older = ("worker.actor.ulysses_sequence_parallel_size=2", "worker.reward.reward_type=function")
    assert easyr1(*older).refused == []
    assert easyr1("worker.actor.is_noisy=true").refused != []
    (tmp_path / "verl" / "trainer").mkdir(parents=True)
    (tmp_path / "verl" / "trainer" / "config.py").write_text("class ActorConfig:\n    is_noisy: bool = False\n")
    own = easyr1("worker.actor.is_noisy=true")
    assert (own.refused, own.added) == ([], {"worker.actor.is_noisy"})
