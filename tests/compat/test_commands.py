"""Lists of commands: the bar for the captured ones, and what the check says of a list."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whet.cli import main
from whet.compat.checking import Verdict, check_command
from whet.compat.commands import check_all, read_commands

CAPTURED_FILE = Path(__file__).with_name("captured.json")
REFERENCE = Path(__file__).parents[3] / "shared" / "reference" / "commands.json"
# Backends that whet does not have.
_BACKENDS = ("npu",)


def test_the_packaged_sample_of_commands_passes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    assert main(["check", "--commands", str(CAPTURED_FILE), "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    refused = [each["script"] for each in found if each["verdict"] != Verdict.ACCEPTED]
    assert refused == ["examples/configs/train_vppo_8b.sh"]  # an empty value, which its system refuses too
    assert "files not here" in capsys.readouterr().out


@pytest.mark.skipif(not REFERENCE.is_file(), reason="../shared/reference is not here")
def test_the_bar_for_the_captured_commands() -> None:
    checked = check_all(read_commands(REFERENCE), REFERENCE.parent)
    assert len(checked) == 106
    assert not [each.name for each in checked if each.verdict is Verdict.UNKNOWN]
    original = [each for each in checked if each.verdict is Verdict.ORIGINAL]
    assert len(original) == 8
    assert all(each.reasons for each in original)
    own = [each for each in checked if each.verdict is not Verdict.ORIGINAL]
    assert [each.name for each in own if each.system != "verl" and each.verdict is not Verdict.ACCEPTED] == []
    verl = [each for each in own if each.system == "verl" and not any(word in each.name for word in _BACKENDS)]
    accepted = [each for each in verl if each.verdict is Verdict.ACCEPTED]
    assert len(accepted) >= 0.9 * len(verl), [each.name for each in verl if each not in accepted]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{", "cannot be read"),
        ("{}", "a list"),
        ('[{"system": "verl"}]', "entry 0"),
        ('[{"system":"x","module":"m","args":[]}]', "not one of"),
    ],
)
def test_a_list_that_cannot_be_read(text: str, word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "list.json"
    file.write_text(text)
    assert main(["check", "--commands", str(file)]) == 2
    assert word in capsys.readouterr().err


@pytest.mark.parametrize(
    ("launcher", "devices"),
    [
        (("--standalone", "--nnodes=2", "--nproc_per_node", "3"), {"trainer.nnodes": 2, "trainer.n_gpus_per_node": 3}),
        (("--nproc-per-node=auto", "--nnodes=1:4", "--nproc_per_node"), {}),
    ],
)
def test_options_of_torchrun_say_how_many_devices_there_are(launcher: tuple[str, ...], devices: dict[str, int]) -> None:
    arguments = ["data.train_files=x", "data.val_files=x", "model.partial_pretrain=m"]
    found = check_command("verl", "verl.trainer.fsdp_sft_trainer", arguments, Path(), launcher=launcher).translation
    assert found is not None
    assert {key: each.value for key, each in found.settings.items() if each.sources == ("torchrun",)} == devices
