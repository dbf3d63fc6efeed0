"""The commands of docs/merge.md run as they stand, and it names every option."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import torch
from merge.test_merge_shards import same_weights, weights

from whet.cli import main
from whet.cli.merge import COMMAND

GUIDE = (Path(__file__).parents[2] / "docs" / "merge.md").read_text()


def test_commands_for_shards(checkpoint, small_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    block = GUIDE.partition("```bash\n")[2].partition("```")[0]
    run = tmp_path / "checkpoints" / "run" / "global_step_10"
    run.parent.mkdir(parents=True)
    shutil.move(checkpoint(2).parent, run)
    commands = [shlex.split(line)[1:] for line in block.splitlines()]
    assert len(commands) == 3
    for command in commands:
        assert main(command) == 0
    assert same_weights(run / "actor" / "huggingface", small_model)
    assert same_weights(tmp_path / "merged", small_model)
    assert {tensor.dtype for tensor in weights(tmp_path / "small").values()} == {torch.bfloat16}


def test_help_and_guide_have_the_same_options():
    options = set(re.findall(r"--[\w-]+", COMMAND.help))
    assert options <= set(re.findall(r"--[\w-]+", GUIDE))
