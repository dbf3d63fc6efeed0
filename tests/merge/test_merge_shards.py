"""Files of ranks in the originals' format give back the model they were cut from, to the bit."""

from __future__ import annotations

import json
import pickle
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from merge.conftest import describe, small_llama
from merge.shard_programs import EVERYWHERE, IN_FOURS, SHARED
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from whet.cli import main

CASES = [(world, kind) for world in (1, 2, 4) for kind in EVERYWHERE]
CASES += [(world, kind) for world in (2, 4) for kind in SHARED] + [(4, kind) for kind in IN_FOURS]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}


def same_weights(folder: Path, other: Path) -> bool:
    ours, theirs = weights(folder), weights(other)
    return ours.keys() == theirs.keys() and all(
        ours[name].dtype == theirs[name].dtype and torch.equal(ours[name], theirs[name]) for name in theirs
    )


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    code = main(["merge", *map(str, arguments)])
    error = capsys.readouterr().err
    assert code == 2
    assert "whet: " in error  # after the bars of libraries that show progress
    assert "Traceback" not in error
    return error


@pytest.mark.parametrize(("world", "kind"), CASES)
def test_the_model_comes_back_to_the_bit(checkpoint, small_model, tmp_path, world, kind):
    target = tmp_path / "merged"
    assert main(["merge", "--local_dir", str(checkpoint(world, kind)), "--target_dir", str(target)]) == 0
    assert same_weights(target, small_model)
    loaded, info = AutoModelForCausalLM.from_pretrained(target, dtype="auto", output_loading_info=True)
    assert loaded.dtype == torch.bfloat16
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))


def test_beside_the_config_with_tokenizer_and_generation_config(checkpoint, small_model, capsys):
    actor = checkpoint(2)
    assert main(["merge", "--local_dir", str(actor.parent)]) == 0  # global_step_N finds its actor/
    folder = actor / "huggingface"
    assert f"the merged model is in {folder}" in capsys.readouterr().out
    assert same_weights(folder, small_model)
    assert AutoTokenizer.from_pretrained(folder)("3")["input_ids"] == [3]
    assert GenerationConfig.from_pretrained(folder).temperature == 0.6
    assert {path.name for path in folder.iterdir()} == {path.name for path in small_model.iterdir()}


def test_weights_are_never_overwritten(checkpoint, small_model, tmp_path, capsys):
    actor = checkpoint(2)
    assert "holds weights already" in refusal(capsys, "--local_dir", actor, "--target_dir", small_model)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine")
    assert "not an empty folder" in refusal(capsys, "--local_dir", actor, "--target_dir", tmp_path / "notes")


def test_casting(checkpoint, small_model, tmp_path):
    target = tmp_path / "merged"
    assert main(["merge", "--local_dir", str(checkpoint(2)), "--target_dir", str(target), "--dtype", "float32"]) == 0
    whole = weights(small_model)
    assert all(torch.equal(tensor, whole[name].float()) for name, tensor in weights(target).items())
    assert AutoModelForCausalLM.from_pretrained(target, dtype="auto").dtype == torch.float32


def test_files_of_a_given_size_with_an_index(checkpoint, small_model, tmp_path, monkeypatch):
    from whet.merge import foreign, safetensors_file

    monkeypatch.setattr(foreign, "write_model", lambda *given: safetensors_file.write_model(*given, max_bytes=3000))
    target = tmp_path / "merged"
    assert main(["merge", "--local_dir", str(checkpoint(2)), "--target_dir", str(target)]) == 0
    assert len(list(target.glob("model-*-of-*.safetensors"))) > 2
    index = json.loads((target / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(t.numel() * t.itemsize for t in weights(small_model).values())
    assert same_weights(target, small_model)
    AutoModelForCausalLM.from_pretrained(target)


# ── what can be wrong ──


def test_a_missing_rank(checkpoint, capsys):
    actor = checkpoint(4)
    (actor / "model_world_size_4_rank_2.pt").unlink()
    assert "model_world_size_4_rank_2.pt is missing" in refusal(capsys, "--local_dir", actor)


def test_files_of_two_runs(checkpoint, shards, capsys):
    actor = checkpoint(2)
    shutil.copy(shards(4) / "fsdp2" / "model_world_size_4_rank_0.pt", actor)
    assert "of 2 and of 4 ranks" in refusal(capsys, "--local_dir", actor)


@pytest.mark.parametrize("left", [0, 100, 0.5, 0.98])
def test_a_file_cut_short(checkpoint, capsys, left):
    file = checkpoint(2) / "model_world_size_2_rank_1.pt"
    data = file.read_bytes()
    file.write_bytes(data[: int(left if left > 1 else left * len(data))])
    message = refusal(capsys, "--local_dir", file.parent)
    assert f"{file} could not be read" in message
    assert not list((file.parent / "huggingface").glob("*.safetensors"))


def test_a_config_of_another_model(checkpoint, capsys):
    actor = checkpoint(2)
    file = actor / "huggingface" / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps(config | {"intermediate_size": 8}))
    message = refusal(capsys, "--local_dir", actor)
    assert "model_world_size_2_rank_0.pt: model.layers.0.mlp.gate_proj.weight has the shape (6, 20)" in message
    assert "(8, 20)" in message
    file.write_text(json.dumps(config | {"num_hidden_layers": 3}))
    assert "holds no weights for model.layers.2.input_layernorm.weight" in refusal(capsys, "--local_dir", actor)
    file.write_text(json.dumps(config | {"num_hidden_layers": 1}))
    assert "which the model of config.json does not have" in refusal(capsys, "--local_dir", actor)
    file.write_text("{")
    assert "config.json" in refusal(capsys, "--local_dir", actor)


def test_a_tokenizer_that_is_missing_is_found_elsewhere(checkpoint, small_model, tmp_path, capsys):
    actor = checkpoint(2)
    for path in (actor / "huggingface").glob("*token*"):
        path.unlink()
    (actor / "huggingface" / "generation_config.json").unlink()
    assert "holds no tokenizer: name the model" in refusal(capsys, "--local_dir", actor)
    assert "--hf_model_path=nowhere/at/all" in refusal(
        capsys, "--local_dir", actor, "--hf_model_path", "nowhere/at/all"
    )
    arguments = ["--local_dir", str(actor), "--hf_model_path", str(small_model), "--target_dir", str(tmp_path / "out")]
    assert main(["merge", *arguments]) == 0
    assert GenerationConfig.from_pretrained(tmp_path / "out").temperature == 0.6
    AutoTokenizer.from_pretrained(tmp_path / "out")


def test_pieces_of_one_tensor_that_do_not_fit(checkpoint, capsys):
    actor = checkpoint(2, "fsdp1")
    shutil.copy(actor / "model_world_size_2_rank_0.pt", actor / "model_world_size_2_rank_1.pt")
    assert "the pieces of" in refusal(capsys, "--local_dir", actor)
    assert not list((actor / "huggingface").glob("*.safetensors"))


# ── pickles ──


class Payload:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> object:
        return Path.touch, (self.file,)


def plain(folder: Path, model: Path, **extra: object) -> Path:
    """One rank's file of whole tensors, with something else in it."""
    folder.mkdir()
    torch.save({**weights(model), **extra}, folder / "model_world_size_1_rank_0.pt")
    describe(model, folder)
    return folder


def test_pickled_code_is_not_run(small_model, tmp_path, capsys):
    folder = plain(tmp_path / "actor", small_model, bad=Payload(tmp_path / "it_ran"))
    message = refusal(capsys, "--local_dir", folder)
    assert "model_world_size_1_rank_0.pt pickles pathlib" in message
    assert "--trust-pickles" in message
    assert not (tmp_path / "it_ran").exists()
    assert main(["merge", "--local_dir", str(folder), "--trust-pickles"]) == 0
    assert (tmp_path / "it_ran").exists()  # so the first part of this test could have failed


def test_pickles_that_are_trusted_have_distributed_tensors_too(checkpoint, small_model, tmp_path):
    for kind in ("fsdp2", "no_mesh"):
        actor = checkpoint(2, kind)
        target = str(tmp_path / kind)
        assert main(["merge", "--local_dir", str(actor), "--trust-pickles", "--target_dir", target]) == 0
        assert same_weights(tmp_path / kind, small_model)
        shutil.rmtree(actor.parent)


def test_values_that_are_no_weights_are_left_out(small_model, tmp_path, capsys):
    folder = plain(tmp_path / "actor", small_model, scale=np.float64(2.0))
    assert "pickles numpy" in refusal(capsys, "--local_dir", folder)
    assert main(["merge", "--local_dir", str(folder), "--trust-pickles"]) == 0
    assert same_weights(folder / "huggingface", small_model)


def test_a_file_that_is_no_state(small_model, tmp_path, capsys):
    folder = plain(tmp_path / "actor", small_model)
    torch.save([1, 2], folder / "model_world_size_1_rank_0.pt")
    assert "holds a list and no state of a model" in refusal(capsys, "--local_dir", folder)
    (folder / "model_world_size_1_rank_0.pt").write_bytes(pickle.dumps({"a": 1}))
    assert "could not be read" in refusal(capsys, "--local_dir", folder)


# Where torch 2.4 kept the classes of DTensor.
PLACE, OLD_PLACE = b"ctorch.distributed.tensor", b"ctorch.distributed._tensor"
OLD_NAMES = {
    PLACE + b"\nDTensor\n": OLD_PLACE + b".api\nDTensor\n",
    PLACE + b".placement_types\n": OLD_PLACE + b".placement_types\n",
    PLACE + b"._dtensor_spec\nDTensorSpec\n": OLD_PLACE + b".placement_types\nDTensorSpec\n",
    PLACE + b"._dtensor_spec\nTensorMeta\n": OLD_PLACE + b".placement_types\nTensorMeta\n",
}


def test_names_of_older_versions_of_torch(checkpoint, small_model):
    """The names alone: a file of today under them, since an old torch cannot be had here."""
    actor = checkpoint(2)
    for file in actor.glob("*.pt"):
        with zipfile.ZipFile(file) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, data in members.items():
                if name.endswith("data.pkl"):
                    for new, old in OLD_NAMES.items():
                        assert new in data
                        data = data.replace(new, old)
                archive.writestr(name, data)
    assert main(["merge", "--local_dir", str(actor)]) == 0
    assert same_weights(actor / "huggingface", small_model)


def test_tied_weights_are_written_once(tmp_path, small_model, capsys):
    whole = tmp_path / "whole"
    model = small_llama(torch.float32, tied=True)
    model.save_pretrained(whole)
    describe(small_model, tmp_path / "actor")
    shutil.copy(whole / "config.json", tmp_path / "actor" / "huggingface")
    file = tmp_path / "actor" / "model_world_size_1_rank_0.pt"
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert "lm_head.weight" in state
    torch.save(state, file)
    assert main(["merge", "--local_dir", str(tmp_path / "actor"), "--target_dir", str(tmp_path / "out")]) == 0
    assert same_weights(tmp_path / "out", whole)
    state["lm_head.weight"][0, 0] += 1
    torch.save(state, file)
    capsys.readouterr()
    assert "tie_word_embeddings" in refusal(capsys, "--local_dir", tmp_path / "actor")


def test_plain_rows_of_several_ranks(small_model, tmp_path):
    """Plain tensors cut along their rows, among copies of those that are not cut."""
    folder = tmp_path / "actor"
    folder.mkdir()
    describe(small_model, folder)
    for rank in range(2):
        state = {
            name: tensor.chunk(2)[rank] if tensor.ndim == 2 else tensor for name, tensor in weights(small_model).items()
        }
        torch.save(state, folder / f"model_world_size_2_rank_{rank}.pt")
    assert main(["merge", "--local_dir", str(folder)]) == 0
    assert same_weights(folder / "huggingface", small_model)
