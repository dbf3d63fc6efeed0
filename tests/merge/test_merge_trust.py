"""A stranger's checkpoint grants no trust, chooses no model, and leads to no file outside of its folder."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import torch
from merge.conftest import small_llama
from merge.hostile import SHARD, one_rank, touching_code
from merge.test_merge_shards import refusal, same_weights, weights
from safetensors.torch import save_file
from tiny_models import tiny_tokenizer

from whet.checkpoint.manifest import write_manifest
from whet.cli import main
from whet.config.schema.model import LoraConfig
from whet.model.lora import add_adapters, save_adapters


@pytest.fixture
def actor(small_model: Path, tmp_path: Path) -> Path:
    return one_rank(small_model, tmp_path / "actor")


def change(file: Path, **values: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def run_config(**model: object) -> dict[str, object]:
    return {"config": {"worker": {"actor": {"model": {"trust_remote_code": False, "override_config": {}} | model}}}}


@pytest.fixture
def adapted(small_model: Path, tmp_path: Path) -> Path:
    """A checkpoint of whet with adapters, whose config may be anyone's."""
    model = small_llama()
    add_adapters(model, LoraConfig(rank=2), str(small_model), seed=1)
    folder = tmp_path / "run" / "global_step_1" / "actor" / "lora_adapter"
    folder.mkdir(parents=True)
    save_adapters(model, folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def checkpoint_of(adapters: Path, **model: object) -> Path:
    folder = adapters.parents[1]
    write_manifest(folder, 1, 1, run_config(**model))
    return folder


# ── whet's own checkpoints ──


def test_the_base_is_named_by_the_user(adapted, small_model, tmp_path, capsys):
    checkpoint = checkpoint_of(adapted)
    message = refusal(capsys, checkpoint, tmp_path / "out")
    assert f"says '{small_model}'" in message
    assert f"whet merge {checkpoint} {tmp_path / 'out'} BASE" in message
    assert not (tmp_path / "out").exists()
    assert main(["merge", str(checkpoint), str(tmp_path / "out"), str(small_model)]) == 0
    assert same_weights(tmp_path / "out", small_model)  # new adapters change nothing


def test_a_manifest_grants_no_trust(adapted, small_model, tmp_path, monkeypatch, capsys):
    """The base has code of its own; the manifest says to run it, the user does not, and nobody is asked."""
    base = tmp_path / "base"
    base.mkdir()
    mark = touching_code(base)
    auto = {"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil"}
    (base / "config.json").write_text(json.dumps({"model_type": "evil", "auto_map": auto}))
    change(adapted / "adapter_config.json", base_model_name_or_path=str(base))
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 9))
    checkpoint = checkpoint_of(adapted, trust_remote_code=True)
    refusal(capsys, checkpoint, tmp_path / "out")
    refusal(capsys, checkpoint, tmp_path / "out", base)
    assert not mark.exists()


@pytest.mark.parametrize(
    "override",
    [
        {"_attn_implementation": "evil/kernel"},
        {"attn_implementation": "evil/kernel"},
        {"auto_map": {"AutoConfig": "evil.Evil"}},
        {"transformers_weights": "../../x.safetensors"},
        {"name_or_path": "/etc"},
        {"num_hidden_layers": 10**9},
        "text",
    ],
    ids=str,
)
def test_a_manifest_overrides_nothing_that_runs_or_reads(adapted, small_model, tmp_path, capsys, override):
    checkpoint = checkpoint_of(adapted, override_config=override)
    assert "manifest.json" in refusal(capsys, checkpoint, tmp_path / "out", small_model)


@pytest.mark.parametrize("meta", [{}, {"config": []}, {"config": {"worker": None}}], ids=str)
def test_manifests_with_something_else_in_them(adapted, small_model, tmp_path, capsys, meta):
    write_manifest(adapted.parents[1], 1, 1, meta)
    assert "is not as whet writes it" in refusal(capsys, adapted.parents[1], tmp_path / "out", small_model)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"megatron_config": {"a": 1}, "megatron_core": "evil"}, "megatron_config"),
        ({"peft_type": "PROMPT_TUNING"}, "only LoRA"),
        ({"r": "2"}, "r='2'"),
        ({"r": 3}, "do not fit"),
        ({"lora_alpha": float("nan")}, "lora_alpha"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
    ],
    ids=str,
)
def test_configs_of_adapters(adapted, small_model, tmp_path, capsys, changes, words):
    change(adapted / "adapter_config.json", **changes)
    assert words in refusal(capsys, checkpoint_of(adapted), tmp_path / "out", small_model)
    assert not (tmp_path / "out").exists()


def test_regular_expressions_of_adapters_are_not_run(adapted, small_model, tmp_path):
    change(adapted / "adapter_config.json", target_modules="(.*.*)*x", exclude_modules="(.*.*)*x")
    assert main(["merge", str(checkpoint_of(adapted)), str(tmp_path / "out"), str(small_model)]) == 0


@pytest.mark.parametrize("what", ["file", "folder"])
def test_links_in_a_checkpoint_are_not_followed(small_model, tmp_path, capsys, what):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key.json").write_text("{}")
    step = tmp_path / "run" / "global_step_1"
    folder = step / "actor" / "huggingface"
    folder.mkdir(parents=True)
    for path in small_model.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    write_manifest(step, 1, 1, run_config())
    assert main(["merge", str(step), str(tmp_path / "plain")]) == 0
    (folder / "leak").symlink_to(secret / "key.json" if what == "file" else secret)
    assert "is a link to" in refusal(capsys, step, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# ── shards of others ──


def test_name_or_path_is_ignored(actor, tmp_path, capsys):
    """It used to copy the descriptions of any local folder beside the weights, which are then uploaded."""
    private = tmp_path / "private"
    private.mkdir()
    (private / "secret.json").write_text('{"key": 1}')
    (private / "notes.txt").write_text("mine")
    change(actor / "huggingface" / "config.json", _name_or_path=str(private))
    assert main(["merge", "--local_dir", str(actor), "--target_dir", str(tmp_path / "out")]) == 0
    assert not {"secret.json", "notes.txt"} & {path.name for path in (tmp_path / "out").iterdir()}


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "notes.txt", "sub/deep.txt"])
def test_links_among_descriptions(actor, tmp_path, capsys, name):
    (tmp_path / "other").write_text("{}")
    link = actor / "huggingface" / name
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(tmp_path / "other")
    assert "is a link to" in refusal(capsys, "--local_dir", actor)


@pytest.mark.parametrize("name", ["huggingface", SHARD, "lora_adapter/adapter_config.json"])
def test_links_to_folders_and_shards(actor, small_model, tmp_path, capsys, name):
    if name.startswith("lora"):
        state = weights(small_model)
        layer = "model.layers.0.self_attn.q_proj"
        for kind, shape in (("A", (1, 20)), ("B", (24, 1))):
            state[f"base_model.model.{layer}.lora_{kind}.default.weight"] = torch.zeros(shape, dtype=torch.bfloat16)
        torch.save(state, actor / SHARD)
        (actor / "lora_adapter").mkdir()
        (actor / name).write_text('{"r": 1, "lora_alpha": 1}')
    (actor / name).rename(tmp_path / "elsewhere")
    (actor / name).symlink_to(tmp_path / "elsewhere")
    assert "is a link to" in refusal(capsys, "--local_dir", actor)


@pytest.mark.parametrize(
    "file", ["config.json", "tokenizer_config.json", "preprocessor_config.json", "generation_config.json"]
)
def test_code_beside_shards_is_not_run_and_nobody_is_asked(actor, tmp_path, monkeypatch, capsys, file):
    mark = touching_code(actor / "huggingface")
    auto = {"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil", "AutoTokenizer": ["evil.Evil", "evil.Evil"]}
    place = actor / "huggingface" / file
    place.write_text("{}") if not place.exists() else None
    change(place, auto_map=auto, model_type="evil", tokenizer_class="Evil", image_processor_type="Evil")
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 9))
    assert main(["merge", "--local_dir", str(actor), "--target_dir", str(tmp_path / "out")]) in (0, 2)
    assert "Traceback" not in capsys.readouterr().err
    assert not mark.exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"attn_implementation": "evil/kernel"}, "names code of the hub"),
        ({"vision_config": {"_attn_implementation": "evil/kernel:f"}}, "names code of the hub"),
        ({"num_hidden_layers": 10**8}, "is more than this model has weights for"),
        ({"num_hidden_layers": float("inf")}, "is more than this model has weights for"),
        ({"num_hidden_layers": "two"}, "config.json describes no model"),
        ({"hidden_size": float("nan")}, "config.json describes no model"),
        ({"hidden_size": 10**15}, "config.json"),
        ({"dtype": "load"}, "config.json"),
        ({"model_type": ["x"]}, "config.json"),
    ],
    ids=str,
)
def test_configs(actor, capsys, changes, words):
    change(actor / "huggingface" / "config.json", **changes)
    assert words in refusal(capsys, "--local_dir", actor)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 900 + "1" + "}" * 900, "[]", "\ud800", "1" * 5000, "{" + " " * (1 << 20)]
)
def test_configs_that_are_no_mapping(actor, capsys, text):
    (actor / "huggingface" / "config.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    assert "config.json could not be read" in refusal(capsys, "--local_dir", actor)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_folders_in_place_of_files(actor, capsys, name):
    (actor / "huggingface" / name).unlink()
    (actor / "huggingface" / name).mkdir()
    assert main(["merge", "--local_dir", str(actor)]) in (0, 2)
    assert "Traceback" not in capsys.readouterr().err


def test_leftover_paths_of_tokenizers_are_ignored(actor, tmp_path, capsys):
    """Honest folders have them; they are neither refused nor read."""
    change(actor / "huggingface" / "tokenizer_config.json", vocab_file="/etc/passwd", special_tokens_map_file="/etc/x")
    assert main(["merge", "--local_dir", str(actor), "--target_dir", str(tmp_path / "out")]) == 0
    change(actor / "huggingface" / "tokenizer_config.json", fast_tokenizer_files=["../../tokenizer.5.0.0.json"])
    assert "outside of" in refusal(capsys, "--local_dir", actor, "--target_dir", tmp_path / "other")


def test_tensors_of_two_files_of_a_checkpoint(small_model, tmp_path, capsys):
    step = tmp_path / "run" / "global_step_1"
    folder = step / "actor" / "huggingface"
    folder.mkdir(parents=True)
    for path in small_model.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    save_file({"lm_head.weight": torch.zeros(2)}, folder / "another.safetensors")
    write_manifest(step, 1, 1, run_config())
    assert "both hold lm_head.weight" in refusal(capsys, step, tmp_path / "out", "--dtype", "float32")
