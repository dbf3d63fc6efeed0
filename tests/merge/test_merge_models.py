"""Models that are held otherwise than their folders hold them, critics, adapters and the hub."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from merge.conftest import describe, small_llama
from merge.test_merge_shards import refusal, same_weights, weights
from model.tiny_vision import KINDS, tiny_vision
from tiny_models import WORDS, tiny_tokenizer
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForTokenClassification,
    PreTrainedModel,
    Qwen3MoeConfig,
)

from whet.cli import main


def saved(folder: Path, state: dict[str, Tensor], model: PreTrainedModel) -> Path:
    """`actor/` of one rank with a state, and the whole model in `whole` beside it."""
    model.save_pretrained(folder / "whole")
    tiny_tokenizer().save_pretrained(folder / "whole")
    (folder / "actor").mkdir()
    describe(folder / "whole", folder / "actor")
    torch.save(state, folder / "actor" / "model_world_size_1_rank_0.pt")
    return folder / "actor"


def small_moe() -> PreTrainedModel:
    torch.manual_seed(5)
    config = Qwen3MoeConfig(
        vocab_size=WORDS,
        hidden_size=16,
        intermediate_size=24,
        moe_intermediate_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        num_experts=4,
        num_experts_per_tok=2,
    )
    return AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize("names", ["modules", "folder"])
def test_experts(tmp_path, names):
    """Held as one tensor by today's modules, and one by one in folders and by the modules of transformers 4."""
    model = small_moe()
    model.save_pretrained(tmp_path / "first")
    state = weights(tmp_path / "first")
    assert state.keys() != model.state_dict().keys()
    actor = saved(tmp_path, dict(model.state_dict()) if names == "modules" else state, model)
    assert main(["merge", "--local_dir", str(actor)]) == 0
    assert same_weights(actor / "huggingface", tmp_path / "whole")


@pytest.mark.parametrize("names", ["modules", "folder"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_sees(tmp_path, kind, names):
    model = tiny_vision(kind, ours=False)
    model.save_pretrained(tmp_path / "first")
    state = dict(model.state_dict()) if names == "modules" else weights(tmp_path / "first")
    actor = saved(tmp_path, state, model)
    (actor / "huggingface" / "preprocessor_config.json").write_text("{}")
    assert main(["merge", "--local_dir", str(actor), "--target_dir", str(tmp_path / "out")]) == 0
    assert same_weights(tmp_path / "out", tmp_path / "whole")
    assert (tmp_path / "out" / "preprocessor_config.json").is_file()
    AutoModelForImageTextToText.from_pretrained(tmp_path / "out")


def test_a_critic(tmp_path):
    config = small_llama().config
    config.num_labels = 1
    model = AutoModelForTokenClassification.from_config(config, dtype=torch.float32)
    actor = saved(tmp_path, dict(model.state_dict()), model)
    file = actor / "huggingface" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"architectures": ["LlamaForCausalLM"]}))
    assert main(["merge", "--local_dir", str(actor)]) == 0
    assert same_weights(actor / "huggingface", tmp_path / "whole")
    assert json.loads(file.read_text())["architectures"] == ["LlamaForTokenClassification"]


# ── adapters ──


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=str)
def adapted(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, Any]:
    """A checkpoint of a LoRA run as verl and EasyR1 leave it, and PEFT's model."""
    from peft import LoraConfig, get_peft_model

    base = small_llama(request.param)
    config = LoraConfig(r=3, lora_alpha=5, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    wrapped = get_peft_model(small_llama(request.param), config, autocast_adapter_dtype=False)
    actor = saved(tmp_path, {name: t.clone() for name, t in wrapped.state_dict().items()}, base)
    wrapped.save_pretrained(actor / "lora_adapter")
    return actor, wrapped


def test_adapters_are_merged_as_peft_merges_them(adapted, tmp_path):
    actor, wrapped = adapted
    assert main(["merge", "--local_dir", str(actor), "--target_dir", str(tmp_path / "out")]) == 0
    wrapped.merge_and_unload().save_pretrained(tmp_path / "expected")
    assert same_weights(tmp_path / "out", tmp_path / "expected")
    assert not same_weights(tmp_path / "out", tmp_path / "whole")


def test_adapters_are_kept(adapted, tmp_path):
    from peft import PeftModel

    actor, wrapped = adapted
    assert main(["merge", "--local_dir", str(actor), "--target_dir", str(tmp_path / "out"), "--keep-lora"]) == 0
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "whole", dtype="auto")
    read = PeftModel.from_pretrained(base, str(tmp_path / "out"), autocast_adapter_dtype=False)
    assert all(torch.equal(tensor, wrapped.state_dict()[name]) for name, tensor in read.state_dict().items())


def test_adapters_of_unknown_weight_are_refused(adapted, capsys):
    actor, _ = adapted
    file = actor / "lora_adapter" / "adapter_config.json"
    config = json.loads(file.read_text())
    capsys.readouterr()
    file.write_text(json.dumps(config | {"lora_alpha": 0}))  # verl's merger writes this where it does not know
    assert "lora_alpha=0. Write that file" in refusal(capsys, "--local_dir", actor)
    file.write_text(json.dumps(config | {"use_dora": True}))
    assert "use_dora=True cannot be merged" in refusal(capsys, "--local_dir", actor)
    file.unlink()
    assert "should say its lora_alpha" in refusal(capsys, "--local_dir", actor)


# ── the hub ──


class Hub(BaseHTTPRequestHandler):
    """A stand-in for the hub: who somebody is, a new repository, a commit with its files inside."""

    made: list[dict[str, Any]]
    files: dict[str, bytes]

    def do_GET(self) -> None:
        known = self.headers.get("Authorization") == "Bearer hf_good"
        self._answer(*((200, {"name": "me", "type": "user"}) if known else (401, {"error": "no"})))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.endswith("/repos/create"):
            self.made.append(json.loads(body))
            self._answer(200, {"url": f"{self._address()}/me/merged"})
        elif "/preupload/" in self.path:
            names = [file["path"] for file in json.loads(body)["files"]]
            answer = [{"path": name, "uploadMode": "regular", "shouldIgnore": False, "oid": None} for name in names]
            self._answer(200, {"files": answer})
        elif "/commit/" in self.path:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            oid = "0" * 40
            self._answer(200, {"commitUrl": f"{self._address()}/me/merged/commit/{oid}", "commitOid": oid})
        else:
            self._answer(200, {})

    def _address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def _answer(self, code: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hub]]:
    """The stand-in, where the hub's client looks for it."""
    from huggingface_hub import constants, hf_api

    Hub.made, Hub.files = [], {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(hf_api.api, "endpoint", address)
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    yield Hub
    server.shutdown()
    server.server_close()


def test_upload(checkpoint, hub, tmp_path, capsys):
    arguments = ["--local_dir", str(checkpoint(1)), "--hf_upload_path", "me/merged", "--private"]
    assert main(["merge", *arguments, "--target_dir", str(tmp_path / "out")]) == 0
    assert [repo["name"] for repo in hub.made] == ["merged"]
    assert hub.made[0].get("private") or hub.made[0]["visibility"] == "private"  # by the client's version
    assert hub.files == {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert {"model.safetensors", "tokenizer.json", "generation_config.json", "config.json"} <= hub.files.keys()
    assert "uploaded to" in capsys.readouterr().out


def test_upload_by_nobody_is_refused_before_work(checkpoint, hub, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HF_TOKEN", "hf_bad")
    actor = checkpoint(1)
    message = refusal(capsys, "--local_dir", actor, "--hf_upload_path", "me/merged")
    assert "--hf_upload_path=me/merged: the hub does not know you" in message
    assert "is no name of a repository" in refusal(capsys, "--local_dir", actor, "--hf_upload_path", "a/b/c")
    assert not list((actor / "huggingface").glob("*.safetensors"))
    assert not hub.made


# ── what is asked for ──


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--local_dir", "nothing"], "nothing is not a folder"),
        (["--local_dir", "."], "is no checkpoint"),
        (["--local_dir", ".", "out"], "out stands beside --local_dir"),
        (["--local_dir", ".", "--backend", "megatron"], "only fsdp can be merged"),
        (["--local_dir", ".", "--dtype", "int4"], "--dtype: invalid choice: 'int4'"),
        (["--locl_dir", "."], "unrecognized arguments: --locl_dir"),
        ([], "whet merge takes a checkpoint and a folder"),
    ],
)
def test_arguments_that_make_no_sense(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert words in refusal(capsys, *arguments)


def test_the_command_line_of_verl(checkpoint, small_model, tmp_path):
    actor = checkpoint(2, "fsdp1")
    arguments = ["merge", "--backend", "fsdp", "--local_dir", str(actor), "--target_dir", str(tmp_path / "out")]
    assert main(["merge", *arguments]) == 0
    assert same_weights(tmp_path / "out", small_model)
