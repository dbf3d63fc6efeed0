"""Weights that come with the package: verified, the same bits everywhere, and used without any training."""

import hashlib
import json
import shutil

import pytest
import torch
from fork_server import run_script
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, LlamaForCausalLM

from whet.assets import builtin, shipped
from whet.assets.quickstart import make_config
from whet.assets.vision_model import QWEN2_5, QWEN3, make_vision_model, save
from whet.cli import main
from whet.model.load import load_tokenizer

MODELS = ("calculator", "collect", "guess", "quickstart", "sentences", "vision", "vision3")
FAMILIES = {"collect": QWEN2_5, "sentences": QWEN2_5, "vision": QWEN2_5, "vision3": QWEN3}


def silent(line):
    pass


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """A copy of the shipped files that tests may damage, and an empty cache."""
    folder = tmp_path / "weights"
    shutil.copytree(shipped.FOLDER, folder)
    monkeypatch.setattr(shipped, "FOLDER", folder)
    monkeypatch.setenv("WHET_HOME", str(tmp_path / "home"))
    return folder


def test_every_shipped_file_has_its_checksum_and_can_be_read_by_everyone():
    found = {str(path.relative_to(shipped.FOLDER)): path for path in shipped.FOLDER.rglob("*") if path.is_file()}
    del found[shipped.CHECKSUMS]
    assert found.keys() == {f"{name}/{file}" for name in MODELS for file in (shipped.WEIGHTS, shipped.TOKENIZER)}
    recorded = shipped.checksums()
    assert recorded == {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in found.items()}
    assert sum(path.stat().st_size for path in found.values()) < 4 << 20


@pytest.mark.parametrize("name", MODELS)
def test_folders_hold_the_shipped_values_and_load_whole(whet_home, name):
    folder = builtin(f"whet/{name}", silent) / "model"
    ours, theirs = load_file(folder / "model.safetensors"), load_file(shipped.FOLDER / name / "model.safetensors")
    assert ours.keys() == theirs.keys()
    for key, value in ours.items():
        assert value.dtype == torch.float32
        assert torch.equal(value, theirs[key].float())
    auto = AutoModelForImageTextToText if name in FAMILIES else AutoModelForCausalLM
    model, info = auto.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert next(model.parameters()).dtype == torch.float32


@pytest.mark.parametrize("name", MODELS)
def test_folders_are_those_that_transformers_saves(whet_home, tmp_path, name):
    folder = builtin(f"whet/{name}", silent) / "model"
    tokenizer = load_tokenizer(str(folder))
    if name not in FAMILIES:
        LlamaForCausalLM(make_config(tokenizer)).save_pretrained(tmp_path)
        names = {"config.json"}
    else:
        save(make_vision_model(tokenizer, FAMILIES[name]), tokenizer, FAMILIES[name], tmp_path)
        names = {path.name for path in tmp_path.glob("*.json")} - {"tokenizer.json", "tokenizer_config.json"}
        assert {path.name for path in tmp_path.iterdir()} == {path.name for path in folder.iterdir()}
    for file in names:
        assert json.loads((tmp_path / file).read_text()) == json.loads((folder / file).read_text()), file
    shapes = [
        {key: value.shape for key, value in load_file(at / "model.safetensors").items()} for at in (folder, tmp_path)
    ]
    assert shapes[0] == shapes[1]


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "one bit": flip,
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "empty": lambda path: path.write_bytes(b""),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\n"),
    "other line ends": lambda path: path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n")),
    "a Git LFS pointer": lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\n"),
    "missing": lambda path: path.unlink(),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("file", [shipped.WEIGHTS, shipped.TOKENIZER])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named_and_nothing_is_kept(copied, tmp_path, capsys, damage, file):
    path = copied / "quickstart" / file
    DAMAGES[damage](path)
    assert main(["model", "quickstart", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert str(path) in said
    assert "Reinstall whet" in said
    assert "Traceback" not in said
    assert not (tmp_path / "out").exists()
    assert not [path for path in (tmp_path / "home").iterdir() if path.is_dir()]


@pytest.mark.parametrize("content", [None, b"", b"nonsense", b"\xff\xfe", b"00  quickstart/model.safetensors\n"])
def test_damaged_checksums_are_named(copied, tmp_path, capsys, content):
    path = copied / shipped.CHECKSUMS
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert main(["model", "quickstart", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert str(copied) in said
    assert "Reinstall whet" in said


def test_other_weights_are_another_folder_of_the_cache(copied):
    before = {name: builtin(f"whet/{name}", silent) for name in ("quickstart", "vision")}
    weights = copied / "quickstart" / shipped.WEIGHTS
    flip(weights)
    sums = copied / shipped.CHECKSUMS
    lines = [line for line in sums.read_text().splitlines() if not line.endswith(f"quickstart/{shipped.WEIGHTS}")]
    lines.append(f"{hashlib.sha256(weights.read_bytes()).hexdigest()}  quickstart/{shipped.WEIGHTS}")
    sums.write_text("\n".join(lines) + "\n")
    assert builtin("whet/quickstart", silent) != before["quickstart"]
    assert builtin("whet/vision", silent) == before["vision"]


def test_making_a_builtin_trains_nothing_and_leaves_the_random_state(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys, torch\n"
        "os.environ['WHET_HOME'] = os.getcwd()\n"
        "from whet.assets import builtin\n"
        "before = torch.get_rng_state()\n"
        "for name in ('quickstart', 'vision'): builtin(f'whet/{name}', print)\n"
        "assert torch.equal(before, torch.get_rng_state())\n"
        "print([name for name in sys.modules if name.startswith('whet.assets.warm_start')])\n"
    )
    done = run_script(program, folder=tmp_path)
    assert done.code == 0, done.err
    assert done.out.strip().endswith("[]")
