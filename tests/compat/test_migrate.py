"""`whet migrate`: files with the same settings as `whet as`, and the same weights."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import shrink
import yaml
from safetensors.torch import load_file

from whet.cli import main
from whet.compat.migrate import Call, file_text, migrate
from whet.compat.systems import SYSTEMS
from whet.compat.translate import arguments_of
from whet.config.loading.load import load

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT.parent / "shared" / "reference" / "commands.json"
GRPO = [
    "algorithm.adv_estimator=grpo",
    "data.train_files=train.parquet",
    "actor_rollout_ref.model.path=org/model",
    "actor_rollout_ref.rollout.name=vllm",
    "actor_rollout_ref.rollout.n=5",
]


def _settings(arguments: list[str]) -> tuple[dict[str, Any], list[str]]:
    loaded = load(arguments)
    return loaded.config.to_dict(), sorted(problem.sentence.partition(":")[2] for problem in loaded.problems)


def _same_settings(commands: list[dict[str, Any]], folder: Path) -> None:
    file = folder / "whet.yaml"
    for command in commands:
        system = SYSTEMS[command["system"]]
        made = migrate(system, Call(command["module"].split()[-1], command["args"], folder))
        if made.translation is None:
            continue
        text = file_text(system, made, "whet.yaml")
        file.write_text(text)
        assert _settings([f"config={file}"])[0] == _settings(arguments_of(made.translation))[0], command["script"]
        for setting in made.translation.settings.values():
            assert all(source in text for source in setting.sources), (command["script"], setting.key)
        for remark in (*made.translation.refused, *made.translation.no_effect):
            assert remark.key in text


def test_a_file_has_the_settings_of_the_command(tmp_path: Path) -> None:
    _same_settings(shrink.CAPTURED, tmp_path)


@pytest.mark.skipif(not REFERENCE.is_file(), reason="../shared/reference is not here")
@pytest.mark.slow
def test_files_of_all_captured_commands_have_their_settings(tmp_path: Path) -> None:
    _same_settings(json.loads(REFERENCE.read_text()), tmp_path)


def test_lines_have_the_original_key_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    idle = "actor_rollout_ref.model.use_remove_padding=True"
    assert main(["migrate", "verl", "verl.trainer.main_ppo", *GRPO, idle]) == 0
    lines = (tmp_path / "whet.yaml").read_text().splitlines()
    assert "    n: 5  # actor_rollout_ref.rollout.n=5" in lines
    assert "  total_epochs: 30  # default of verl: trainer.total_epochs=30" in lines
    assert "  match: verl  # computes as verl does" in lines
    assert any(line.startswith("#   actor_rollout_ref.model.use_remove_padding=true: ") for line in lines)
    out = capsys.readouterr().out
    assert "trainer.total_epochs: 15 -> 30" in out
    assert "whet train config=whet.yaml" in out
    assert main(["migrate", "verl", *GRPO]) == 2
    assert "exists" in capsys.readouterr().err
    assert main(["migrate", "verl", *GRPO, "--out", "fixed.yaml", "--fixed"]) == 0
    assert yaml.safe_load((tmp_path / "fixed.yaml").read_text()).get("algorithm", {}).get("match", "whet") == "whet"


def test_a_script_with_several_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.sh").write_text(
        f"mkdir inner; cd inner\npython3 -m verl.trainer.main_ppo {shlex.join(GRPO)} data.max_prompt_length=$LONG $@\n"
        "torchrun --nproc_per_node 2 -m verl.trainer.fsdp_sft_trainer data.train_files=a.parquet\n"
        "python3 -m verl.model_merger merge --backend fsdp --local_dir x/global_step_2/actor --target_dir out\n"
    )
    monkeypatch.setenv("LONG", "77")
    assert main(["migrate", "verl", "--out", "made.yaml", "run.sh", "trainer.test_freq=3"]) == 0
    first, second = (yaml.safe_load((tmp_path / name).read_text()) for name in ("made.yaml", "made-2.yaml"))
    assert first["data"]["max_prompt_length"] == 77
    assert first["trainer"]["val_freq"] == 3
    assert f"Relative paths start from {tmp_path / 'inner'}" in (tmp_path / "made.yaml").read_text()
    assert "n_gpus_per_node" not in second.get("trainer", {})
    out = capsys.readouterr().out
    assert "torchrun --nproc_per_node 2 -m whet sft config=made-2.yaml" in out
    assert "whet merge --local_dir x/global_step_2/actor --target_dir out" in out


def test_yaml_files_of_the_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "easy.yaml").write_text(
        "data: {train_files: a.jsonl, rollout_batch_size: 24}\ntrainer: {max_steps: 7}\n"
        "worker: {actor: {global_batch_size: 24}, rollout: {n: 5}}\n"
    )
    (tmp_path / "ppo.yaml").write_text(
        "defaults: [ppo_trainer, _self_]\ndata: {train_files: a.jsonl, train_batch_size: 24}\n"
        "actor_rollout_ref: {rollout: {name: vllm}, actor: {ppo_mini_batch_size: 24}}\n"
    )
    assert main(["migrate", "easyr1", "easy.yaml", "trainer.max_steps=8", "--out=e.yaml"]) == 0
    assert main(["migrate", "verl", "ppo.yaml", "--out", "v.yaml", "data.max_prompt_length=9"]) == 0
    easy, verl = (yaml.safe_load((tmp_path / name).read_text()) for name in ("e.yaml", "v.yaml"))
    assert (easy["data"]["rollout_batch_size"], easy["trainer"]["max_steps"]) == (24, 8)
    assert (verl["data"]["rollout_batch_size"], verl["data"]["max_prompt_length"]) == (24, 9)


def test_what_is_refused_is_said_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["migrate", "verl", *GRPO, "distillation.enabled=True", "++data.nonsense=1"]) == 2
    text = (tmp_path / "whet.yaml").read_text()
    assert "#   distillation.enabled=true: " in text
    assert "#   data.nonsense=1: " in text
    assert "nonsense" not in str(yaml.safe_load(text))
    assert "not here:" in capsys.readouterr().out


def test_secrets_are_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reward = ["custom_reward_function.path=r.py", "+custom_reward_function.reward_kwargs.api_key=hunter2hunter2"]
    main(["migrate", "verl", *GRPO, *reward])
    text = (tmp_path / "whet.yaml").read_text()
    assert "hunter2" not in text
    assert '"api_key": "???"' in text
    assert "oc.env" in text


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "name the system"),
        (["verl"], "name a script"),
        (["verll", "x.sh"], "not one of"),
        (["verl", "nothing.sh"], "no such script"),
        (["easyr1", "nothing.yaml"], "no such file"),
        (["verl", "--"], "nothing follows"),
        (["verl", "--out"], "name the file"),
        (["verl", "--", "true"], "no main of verl"),
        (["verl", "--out", "no/\\0/x", "a=b"], ""),
    ],
)
def test_mistakes(
    arguments: list[str], word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["migrate", *arguments]) == 2
    assert word in capsys.readouterr().err


def _weights(folder: Path) -> dict[str, Any]:
    found = sorted((folder / "run" / "global_step_2").rglob("*.safetensors"))
    assert found
    return {f"{file.name}:{name}": tensor for file in found for name, tensor in load_file(file).items()}


def _trains_the_same(command: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    module = command["module"].split()[-1]
    both = []
    for name in ("as", "migrated"):
        (folder / name).mkdir()
        shrink.write_data(folder / name)
        arguments = shrink.small(command, folder / name)
        if name == "as":
            assert main(["as", "--entry", command["system"], module, "--", *arguments]) == 0
        else:
            file = folder / "whet.yaml"
            assert main(["migrate", command["system"], "--out", str(file), module, *arguments]) == 0
            job = "sft" if "sft" in module else "train"
            assert main([job, f"config={file}"]) == 0
        both.append(_weights(folder / name))
    assert both[0].keys() == both[1].keys()
    assert all(both[0][name].equal(both[1][name]) for name in both[0])


def _named(*labels: str) -> list[dict[str, Any]]:
    return [command for command in shrink.CAPTURED if shrink.label(command) in labels]


@pytest.mark.parametrize("command", _named("verl-run_qwen2-7b"), ids=shrink.label)
def test_the_file_trains_the_same_bits(
    command: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quickstart: Path
) -> None:
    _trains_the_same(command, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [each for each in shrink.CAPTURED if "generation" not in each["module"]], ids=shrink.label
)
def test_every_file_trains_the_same_bits(
    command: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quickstart: Path
) -> None:
    _trains_the_same(command, tmp_path, monkeypatch)
