"""The script that makes the shipped weights: the same bits twice, and tokenizers that are the shipped ones."""

import hashlib

import pytest
import torch
from safetensors.torch import load_file

from whet.assets import shipped
from whet.assets.warm_start import pictures, text
from whet.assets.warm_start.__main__ import main
from whet.assets.warm_start.recipes import TEACHERS, reproducible
from whet.assets.warm_start.ship import halved, ship


def silent(line):
    pass


@pytest.fixture
def short(monkeypatch):
    """A few steps of each warm start."""
    for name, value in {"STEPS": 6, "WARMUP": 2}.items():
        monkeypatch.setattr(text, name, value)
    for name, value in {"STEPS": 2, "GUESSING": 1, "WARMUP": 1, "PROMPTS": 2000}.items():
        monkeypatch.setattr(pictures, name, value)


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_making_it_again_gives_the_same_bits_whatever_the_threads(short, tmp_path):
    before, rng = torch.get_num_threads(), torch.get_rng_state()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        ship("quickstart", *TEACHERS["quickstart"](silent), tmp_path / str(threads))
        assert torch.get_num_threads() == threads
    torch.set_num_threads(before)
    assert torch.equal(rng, torch.get_rng_state())
    one, two = (files(tmp_path / name) for name in "12")
    assert one == two
    assert one["quickstart/tokenizer.json"] == shipped.read_shipped("quickstart/tokenizer.json")


@pytest.mark.parametrize("name", ["vision", "vision3", "sentences", "collect"])
def test_making_a_vision_model_again_gives_the_same_bits(short, tmp_path, name, monkeypatch):
    monkeypatch.setattr(pictures, "PROMPTS", 64)
    for seed in (1, 99):  # whatever the state of torch
        with reproducible(seed):
            ship(name, *TEACHERS[name](silent), tmp_path / str(seed))
    assert files(tmp_path / "1") == files(tmp_path / "99")
    ours, theirs = (load_file(folder / name / shipped.WEIGHTS) for folder in (tmp_path / "1", shipped.FOLDER))
    assert ours.keys() == theirs.keys()


def test_values_beyond_half_precision_are_refused():
    assert torch.equal(halved("x", torch.tensor([65504.0, -1.0])), torch.tensor([65504.0, -1.0]).half())
    with pytest.raises(ValueError, match="layer"):
        halved("layer", torch.tensor([65536.0]))


def test_one_model_can_be_replaced_without_touching_the_checksums_of_others(short, tmp_path):
    (tmp_path / shipped.CHECKSUMS).write_text(f"{'0' * 64}  vision/model.safetensors\n")
    ship("quickstart", *TEACHERS["quickstart"](silent), tmp_path)
    lines = (tmp_path / shipped.CHECKSUMS).read_text().splitlines()
    assert f"{'0' * 64}  vision/model.safetensors" in lines
    digest = hashlib.sha256((tmp_path / "quickstart" / shipped.WEIGHTS).read_bytes()).hexdigest()
    assert f"{digest}  quickstart/{shipped.WEIGHTS}" in lines
    assert len(lines) == 3


def test_the_script_makes_what_it_is_told(short, tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--folder", str(tmp_path), "quickstart", "nothing"])
    assert stopped.value.code == 2
    assert "quickstart, vision, vision3, sentences" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    main(["--folder", str(tmp_path), "quickstart"])
    assert files(tmp_path).keys() == {"SHA256SUMS", "quickstart/model.safetensors", "quickstart/tokenizer.json"}
