"""`whet merge` of a run of whet that trained all weights."""

from __future__ import annotations

import torch
from merge.test_merge_shards import refusal, weights
from transformers import AutoModelForCausalLM
from whet_process import run_folder, train

from whet.cli import main


def test_a_checkpoint_of_all_weights(tmp_path, few_rows, capsys):
    code, text = train(tmp_path, *few_rows, "trainer.max_steps=1", "trainer.experiment_name=whole")
    assert code == 0, text
    checkpoint = run_folder(tmp_path, "whole") / "global_step_1"
    model = checkpoint / "actor" / "huggingface"
    assert main(["merge", str(checkpoint), str(tmp_path / "out")]) == 0
    assert {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()} == {
        p.name: p.read_bytes() for p in model.iterdir()
    }
    cast = ["--local_dir", str(checkpoint / "actor"), "--target_dir", str(tmp_path / "bf16"), "--dtype", "bfloat16"]
    assert main(["merge", *cast]) == 0
    whole = weights(model)
    assert all(torch.equal(tensor, whole[name].bfloat16()) for name, tensor in weights(tmp_path / "bf16").items())
    AutoModelForCausalLM.from_pretrained(tmp_path / "bf16")
    capsys.readouterr()
    assert "has no adapters" in refusal(capsys, checkpoint, tmp_path / "other", "--keep-lora")
    assert "is a run folder" in refusal(capsys, checkpoint, checkpoint.parent)
    assert "say by --target_dir" in refusal(capsys, "--local_dir", checkpoint)
