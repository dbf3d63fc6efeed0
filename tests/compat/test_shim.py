"""Interception of calls inside scripts, with calls written down instead of run."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from whet.cli import main
from whet.compat.recording import record
from whet.compat.shim import shimmed
from whet.compat.systems import SYSTEMS

VERL = SYSTEMS["verl"]
ROOT = Path(__file__).parents[2]
SCRIPT = """\
set -ex
cd inner
export LENGTH=7
PYTHONUNBUFFERED=1 python3 -u -m verl.trainer.main_ppo --config-path=config data.max_prompt_length=$LENGTH "$@"
torchrun --standalone --nnodes=1 --nproc_per_node 8 -m verl.trainer.fsdp_sft_trainer data.max_length=5
ray job submit --address=http://x:1 --working-dir . -- python3 -m verl.trainer.main_eval data.path='a b'
python3 -m torch.distributed.run --nproc_per_node=2 verl/trainer/sft_trainer.py x=1
python -W ignore verl/trainer/main_generation.py data.n_samples=2
python3 examples/data_preprocess/gsm8k.py --local_dir x
(cd verl/trainer && python main_ppo.py data.x=1)
PATH=/usr/bin:/bin python3 -m verl.trainer.main_ppo 'after=${oc.env:LENGTH}'
touch done
"""


def test_calls_are_found_in_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LENGTH", "")
    (tmp_path / "inner" / "verl" / "trainer").mkdir(parents=True)
    (tmp_path / "run.sh").write_text(SCRIPT)
    found = record(VERL, ["bash", "run.sh", "trainer.nnodes=2"])
    assert os.environ["LENGTH"] == "7"  # which the last call names, and the script has set
    assert found.code == 0
    assert (tmp_path / "inner" / "done").exists()
    assert [call["module"] for call in found.entries] == [
        "verl.trainer.main_ppo",
        "verl.trainer.fsdp_sft_trainer",
        "verl.trainer.main_eval",
        "verl/trainer/sft_trainer.py",
        "verl/trainer/main_generation.py",
        "verl.trainer.main_ppo",
        "verl.trainer.main_ppo",
    ]
    assert found.entries[0]["args"] == ["--config-path=config", "data.max_prompt_length=7", "trainer.nnodes=2"]
    assert found.entries[0]["cwd"] == str(tmp_path / "inner")
    assert found.entries[1]["launcher"] == ["--standalone", "--nnodes=1", "--nproc_per_node", "8"]
    assert found.entries[2]["args"] == ["data.path=a b"]
    assert [call["args"][0] for call in found.others] == ["examples/data_preprocess/gsm8k.py"]


def test_other_programs_run_as_they_would(tmp_path: Path) -> None:
    with shimmed(VERL, []) as shim:
        script = (
            "python3 -c 'print(6 * 7)'; python3 - <<< 'print(1)'; python3 -m json.tool --help >/dev/null && echo yes"
        )
        out = subprocess.run(["bash", "-c", script], env=shim.environment, capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["42", "1", "yes"]
    assert "whet-as-" not in os.environ["PATH"]


def test_check_reports_a_script_and_exits_with_2_where_keys_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    call = "python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.name=vllm algorithm.adv_estimator=grpo"
    Path("run.sh").write_text(
        f'{call} actor_rollout_ref.rollout.n=4 actor_rollout_ref.model.use_remove_padding=True "$@"\n'
    )
    assert main(["check", "--as", "verl", "run.sh"]) == 0
    said = capsys.readouterr().out
    for word in (
        "accepted",
        "worker.rollout.n=4",
        "use_remove_padding",
        "worker.actor.clip_ratio_high=0.2",
        "not on this machine",
    ):
        assert word in said
    assert main(["check", "--as", "verl", "run.sh", "data.custom_cls.path=x.py"]) == 2
    assert "data.custom_cls.path" in capsys.readouterr().out
    assert main(["check", "--as", "verl", "run.sh", "data.nothing=1"]) == 2
    assert "refused by the original too" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["as", "verl", "bash", "x"], "after --"),
        (["as", "--", "bash"], "name the system"),
        (["as", "verl", "--"], "nothing follows"),
        (["as", "werl", "--", "true"], "did you mean verl"),
        (["as", "verl", "--wrong", "--", "true"], "no option --wrong"),
        (["as", "verl", "--set", "x", "--", "true"], "expected key=value"),
        (["as", "verl", "--", "./no-such-program"], "cannot be run"),
        (["check", "--as", "verl"], "name a system and a script"),
        (["check", "--as", "verl", "no.sh"], "no such script"),
        (["check", "--as", "verl", "--", "true"], "called no main"),
        (
            ["check", "--as", "verl", "--", "python", "-m", "recipe.x.main_x"],
            "it called recipe.x.main_x, and whet runs",
        ),
    ],
)
def test_mistakes_are_sentences(arguments: list[str], word: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert word in capfd.readouterr().err


def test_the_exit_code_of_the_script_is_kept() -> None:
    assert main(["as", "verl", "--", "bash", "-c", "exit 7"]) == 7


def test_an_intercepted_call_imports_from_its_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[str]()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["first", "second"])
    monkeypatch.setattr(sys, "argv", ["entry.py", "verl", "verl.trainer.main_ppo", "[]", "data.x=1"])
    monkeypatch.setattr(runpy, "run_module", lambda *_, **__: seen.extend(sys.path))
    runpy.run_path(str(ROOT / "whet" / "compat" / "shim" / "entry.py"), run_name="__main__")
    assert seen == [str(ROOT), "second", str(tmp_path)]  # whet first, whatever the folder holds
