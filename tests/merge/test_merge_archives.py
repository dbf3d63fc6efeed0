"""Shards that are not as torch.save wrote them are read right or refused, never merged to other numbers."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import pytest
import torch
from merge.conftest import small_llama
from merge.hostile import SHARD, copied, one_rank, repacked
from merge.test_merge_shards import refusal, same_weights, weights

from whet.cli import main
from whet.errors import UserError
from whet.model.load import load_model


@pytest.fixture
def actor(small_model: Path, tmp_path: Path) -> Path:
    return one_rank(small_model, tmp_path / "actor")


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compressed_shards_are_refused(actor, capsys, method):
    repacked(actor / SHARD, compression=method)
    assert "with compression" in refusal(capsys, "--local_dir", actor)


def test_shards_packed_again_without_compression(actor, small_model, tmp_path):
    repacked(actor / SHARD)  # storages lie at odd places by then
    assert main(["merge", "--local_dir", str(actor), "--target_dir", str(tmp_path / "out")]) == 0
    assert same_weights(tmp_path / "out", small_model)


def test_one_bit_of_a_weight(actor, small_model, capsys):
    file = actor / SHARD
    data = bytearray(file.read_bytes())
    at = data.index(weights(small_model)["lm_head.weight"].view(torch.uint8).numpy().tobytes())
    data[at + 5] ^= 1
    file.write_bytes(data)
    assert "does not match its checksum" in refusal(capsys, "--local_dir", actor)


def longer(name: str, data: bytes) -> bytes:
    """The pickle says that every storage has one element more than it has."""
    if not name.endswith("data.pkl"):
        return data
    for count in {tensor.numel() for tensor in small_llama().state_dict().values()}:
        for code, size in ((b"K", 1), (b"M", 2)):
            if count + 1 < 256**size:
                data = data.replace(
                    code + count.to_bytes(size, "little") + b"t", code + (count + 1).to_bytes(size, "little") + b"t"
                )
    return data


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (longer, "and should have"),
        (lambda name, data: b"big" if name.endswith("byteorder") else data, "endian"),
        (lambda name, data: b"middle" if name.endswith("byteorder") else data, "endian"),
        (lambda name, data: data[:-2] if "/data/" in name else data, "bytes, and should have"),
        (lambda name, data: data + b"xx" if "/data/" in name else data, "bytes, and should have"),
        (lambda name, data: data[:-9] if name.endswith("data.pkl") else data, "could not be read"),
        (lambda name, data: b"" if name.endswith("data.pkl") else data, "could not be read"),
        (lambda name, data: pickle.dumps({"a": 1}) if name.endswith("data.pkl") else data, "could not be read"),
    ],
)
def test_archives_that_contradict_themselves(actor, capsys, change, words):
    repacked(actor / SHARD, change)
    assert words in refusal(capsys, "--local_dir", actor)


def save(actor: Path, small_model: Path, **changes: object) -> None:
    torch.save(weights(small_model) | changes, actor / SHARD)


class OutOfBounds:
    """A tensor beyond the end of its storage."""

    def __reduce__(self) -> object:
        return torch._utils._rebuild_tensor_v2, (torch.zeros(4).storage(), 3, (400,), (1,), False, {})


def test_tensors_beyond_their_storage(actor, small_model, capsys):
    save(actor, small_model, **{"lm_head.weight": OutOfBounds()})
    assert "could not be read" in refusal(capsys, "--local_dir", actor)


ROW = torch.zeros(1, 20, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (ROW * torch.nan, "lm_head.weight holds values that are not finite"),
        (ROW + torch.inf, "lm_head.weight holds values that are not finite"),
        (ROW.to(torch.complex64), "numbers of the kind torch.complex64"),
        (ROW.float().to_sparse(), "layout torch.sparse"),
        (ROW.to("meta"), "on meta"),
        (ROW, None),  # one row in the file, and as many as there are words in the model
    ],
)
def test_tensors_of_other_kinds(actor, small_model, tmp_path, capsys, row, words):
    shape = weights(small_model)["lm_head.weight"].shape
    save(actor, small_model, **{"lm_head.weight": row if row.is_sparse else row.expand(shape)})
    if words is not None:
        assert words in refusal(capsys, "--local_dir", actor)
        return
    assert main(["merge", "--local_dir", str(actor), "--target_dir", str(tmp_path / "out")]) == 0
    assert torch.equal(weights(tmp_path / "out")["lm_head.weight"], row.expand(shape))


def test_a_range_that_is_too_small(actor, small_model, tmp_path, capsys):
    save(actor, small_model, **{"model.norm.weight": torch.full((20,), 1e6, dtype=torch.bfloat16)})
    message = refusal(capsys, "--local_dir", actor, "--target_dir", tmp_path / "out", "--dtype", "float16")
    assert "model.norm.weight holds values that are not finite (in float16)" in message
    assert not (tmp_path / "out").exists()


def test_copies_of_different_checkpoints(checkpoint, capsys):
    actor = checkpoint(4, "fsdp2_hybrid")
    last = actor / "model_world_size_4_rank_3.pt"
    with zipfile.ZipFile(last) as archive:
        name = next(entry.filename for entry in archive.infolist() if "/data/" in entry.filename and entry.file_size)
    repacked(last, lambda each, old: bytes(byte ^ 1 for byte in old) if each == name else old)
    assert "different" in refusal(capsys, "--local_dir", actor)


@pytest.mark.parametrize(
    "name",
    [
        "model_world_size_99999999999_rank_0.pt",
        f"model_world_size_{'9' * 200}_rank_0.pt",
        "model_world_size_0_rank_0.pt",
        "model_world_size_2_rank_7.pt",
        "model_world_size_01_rank_00.pt",
        "model_world_size_90000_rank_0.pt",
    ],
)
def test_names_of_shards(actor, capsys, name):
    (actor / SHARD).rename(actor / name)
    assert "model_world_size" in refusal(capsys, "--local_dir", actor)


def test_a_folder_called_like_a_shard(actor, capsys):
    (actor / SHARD).unlink()
    (actor / SHARD).mkdir()
    assert "could not be read" in refusal(capsys, "--local_dir", actor)


def test_two_weights_of_one_name(actor, small_model, capsys):
    save(actor, small_model, **{"_orig_mod.lm_head.weight": torch.zeros(1)})
    assert "two weights of one name: lm_head.weight" in refusal(capsys, "--local_dir", actor)


def test_a_compressed_file_of_weights_is_not_loaded_either(small_model, tmp_path):
    folder = copied(small_model, tmp_path / "model")
    torch.save(weights(small_model), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert torch.equal(load_model(str(folder)).lm_head.weight, weights(small_model)["lm_head.weight"].float())
    repacked(folder / "pytorch_model.bin", compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(UserError, match="with compression"):
        load_model(str(folder))
