"""Model folders of strangers: what every job that takes one refuses, and what honest folders have."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from merge.hostile import touching_code
from tiny_models import tiny_llama, tiny_tokenizer

from whet.errors import UserError
from whet.model.load import end_ids, load_model, load_model_config, load_tokenizer
from whet.model.trust import check_processor

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_llama("sdpa").save_pretrained(tmp_path / "model")
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def edit(folder: Path, file: str, **values: object) -> None:
    place = folder / file
    place.write_text(json.dumps((json.loads(place.read_text()) if place.exists() else {}) | values))


def indexed(folder: Path, name: object) -> None:
    (folder / WEIGHTS).rename(folder.parent / WEIGHTS)
    names = [name for name, _ in tiny_llama("sdpa").named_parameters()]
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": dict.fromkeys(names, name)}))


def linked(folder: Path, name: str) -> None:
    (folder / name).rename(folder.parent / name)
    (folder / name).symlink_to(folder.parent / name)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: indexed(f, f"../{WEIGHTS}"), "outside of"),
        (lambda f: indexed(f, f"sub/../../{WEIGHTS}"), "outside of"),
        (lambda f: indexed(f, str(f.parent / WEIGHTS)), "outside of"),
        (lambda f: indexed(f, 3), "no name of a file"),
        (lambda f: indexed(f, ["x"]), "no name of a file"),
        (lambda f: indexed(f, "\0"), "no name of a file"),
        (lambda f: (f / INDEX).write_text("[" * 10**5), "could not be read"),
        (lambda f: edit(f, INDEX, weight_map=[1]), "no weight_map"),
        (lambda f: linked(f, WEIGHTS), "is a link to"),
        (lambda f: linked(f, "config.json"), "is a link to"),
        (lambda f: (f / "generation_config.json").symlink_to("/etc/passwd"), "is a link to"),
        (lambda f: edit(f, "adapter_config.json", base_model_name_or_path="/etc"), "holds adapters"),
        (lambda f: edit(f, "config.json", transformers_weights="../x.safetensors"), "outside of"),
        (lambda f: edit(f, "config.json", attn_implementation="evil/kernel"), "names code of the hub"),
        (
            lambda f: edit(f, "config.json", text_config={"_experts_implementation": "evil/kernel"}),
            "names code of the hub",
        ),
        (lambda f: edit(f, "config.json", num_hidden_layers=9000), "more than this model has weights for"),
        (lambda f: edit(f, "config.json", use_pretrained_backbone=True), "another model"),
        (lambda f: edit(f, "config.json", vocab_size=10**12), "model_path"),
    ],
)
def test_folders_that_lead_elsewhere(folder: Path, change: Callable[[Path], object], words: str) -> None:
    (folder / "generation_config.json").unlink()
    change(folder)
    with pytest.raises(UserError, match=words) as refused:
        load_model(str(folder))
    assert "worker.actor.model.model_path" in str(refused.value)


def test_a_folder_with_links_inside_and_one_of_the_hubs_cache(folder: Path, tmp_path: Path) -> None:
    (folder / "weights").mkdir()
    (folder / WEIGHTS).rename(folder / "weights" / WEIGHTS)
    (folder / WEIGHTS).symlink_to(Path("weights") / WEIGHTS)
    load_model(str(folder))
    snapshot, blobs = tmp_path / "models--a--b" / "snapshots" / "0f", tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for path in folder.iterdir():
        if path.is_file():
            (blobs / path.name).write_bytes(path.read_bytes())
            (snapshot / path.name).symlink_to(os.path.relpath(blobs / path.name, snapshot))
    load_model(str(snapshot))
    load_tokenizer(str(snapshot))
    blobs.rename(tmp_path / "elsewhere")  # a stranger's folder may be built like a cache
    blobs.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="is a link to"):
        load_model(str(snapshot))


@pytest.mark.parametrize(
    ("file", "values", "words"),
    [
        ("tokenizer_config.json", {"fast_tokenizer_files": ["../tokenizer.4.0.json"]}, "outside of"),
        ("tokenizer_config.json", {"init_inputs": ["/etc/passwd"]}, "init_inputs"),
        ("special_tokens_map.json", {"vocab_file": "/etc/passwd"}, "no special token"),
    ],
)
def test_tokenizers_that_lead_elsewhere(folder: Path, file: str, values: dict[str, object], words: str) -> None:
    edit(folder, file, **values)
    with pytest.raises(UserError, match=words):
        load_tokenizer(str(folder))


def test_leftovers_of_another_machine_are_ignored(folder: Path) -> None:
    edit(
        folder, "tokenizer_config.json", vocab_file="/gone/vocab.json", tokenizer_file="/gone/t.json", name_or_path="/x"
    )
    assert load_tokenizer(str(folder)).decode([7]) == "7"
    edit(folder, "config.json", _name_or_path="/gone/model")
    assert load_model(str(folder)).dtype == torch.float32


def test_templates_by_links(folder: Path) -> None:
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "x.jinja").symlink_to("/etc/passwd")
    with pytest.raises(UserError, match="is a link to"):
        load_tokenizer(str(folder))


def test_processors_that_load_other_models(folder: Path) -> None:
    edit(folder, "processor_config.json", audio_tokenizer={"audio_tokenizer_name_or_path": "/etc"})
    with pytest.raises(UserError, match="audio tokenizer"):
        check_processor(str(folder))


@pytest.mark.parametrize("load", [load_model_config, load_model, load_tokenizer])
def test_code_is_run_only_where_the_user_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, load: Callable[..., object]
) -> None:
    mark = touching_code(folder)
    auto = {"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil", "AutoTokenizer": ["evil.Evil", None]}
    edit(folder, "config.json", model_type="evil", auto_map=auto)
    edit(folder, "tokenizer_config.json", tokenizer_class="Evil", auto_map=auto)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 9))
    with pytest.raises(UserError):
        load(str(folder))
    assert not mark.exists()
    with pytest.raises((UserError, AttributeError, TypeError)):
        load(str(folder), trust_remote_code=True)
    assert mark.exists()  # so the first part of this test could have failed


@pytest.mark.parametrize("eos", ["text", [1, "x"], 1.5, {"a": 1}, True])
def test_ends_that_are_no_tokens(folder: Path, eos: object) -> None:
    edit(folder, "generation_config.json", eos_token_id=eos)
    with pytest.raises(UserError, match=r"generation_config\.json"):
        end_ids(str(folder), tiny_tokenizer())
