"""vLLM that is not there is named before anything is loaded."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import LlamaConfig

from whet.assets.tokenizer import make_tokenizer
from whet.config import check_config, load_config
from whet.errors import UserError
from whet.rollout.engines.vllm.opening import check_vllm
from whet.rollout.engines.vllm.settings import Settings, write_folder

NAMED = ("worker.actor.model.model_path=m", "worker.reward.reward_function=r.py:f", "data.train_files=t.jsonl")
PLAIN = (*NAMED, "worker.rollout.n=4", "trainer.val_freq=-1")


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter with the standard library alone."""
    folder: Path = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return str(folder / "bin" / "python")


def test_an_interpreter_without_vllm_is_named(bare_python: str) -> None:
    with pytest.raises(UserError, match=rf"worker.rollout.python: {bare_python} has no vLLM. Install it there"):
        Settings(python=bare_python).check()


def test_an_interpreter_that_is_none_is_named() -> None:
    with pytest.raises(UserError, match=r"worker.rollout.python=/no/python: it could not be run"):
        Settings(python="/no/python").check()


def test_an_interpreter_without_torchvision_is_named_for_a_model_that_sees(bare_python: str) -> None:
    (packages,) = Path(bare_python).parent.parent.glob("lib/python*/site-packages")
    (packages / "vllm.py").touch()
    try:
        Settings(python=bare_python).check()
        with pytest.raises(UserError, match=r"images with torchvision, which .* cannot import \(ModuleNotFoundError"):
            Settings(python=bare_python, processor_from="m").check()
    finally:
        (packages / "vllm.py").unlink()


def test_a_model_that_sees_is_told_so() -> None:
    config = LlamaConfig(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=32)
    assert "mm_processor_cache_gb" not in Settings(limit_images=4).arguments(Path("m"), config)
    chosen = Settings(limit_images=4, processor_from="p", on_cpu=False).arguments(Path("m"), config)
    assert chosen["limit_mm_per_prompt"] == {"image": 4}
    assert chosen["mm_processor_cache_gb"] == 0
    assert not chosen["skip_mm_profiling"]


def test_the_processors_files_come_along(tmp_path: Path) -> None:
    source, folder = tmp_path / "source", tmp_path / "folder"
    source.mkdir()
    (source / "preprocessor_config.json").write_text('{"size": 1}')
    config = LlamaConfig(num_hidden_layers=1)
    tokenizer = make_tokenizer(["a b"], 300)
    write_folder(folder, config, tokenizer, str(source))
    assert (folder / "preprocessor_config.json").read_text() == '{"size": 1}'
    assert not (folder / "video_preprocessor_config.json").exists()
    assert not list(folder.glob("*.safetensors"))


def test_arguments_fit_together() -> None:
    config = LlamaConfig(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=32)
    settings = Settings(max_model_len=4096, max_num_batched_tokens=1024, max_num_seqs=8)
    chosen = settings.arguments(Path("m"), config)
    assert chosen["max_num_batched_tokens"] == 4096  # without chunks a prompt must fit into one pass
    assert chosen["kv_cache_memory_bytes"] == 1 << 28
    assert chosen["logprobs_mode"] == "processed_logprobs"
    assert chosen["load_format"] == "dummy"


def test_a_gpu_cache_has_what_its_sequences_need_and_vllms_share_it() -> None:
    config = LlamaConfig(num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128)
    token = 2 * 28 * 8 * 128 * 2
    settings = Settings(
        dtype="bfloat16",
        max_model_len=1024,
        max_num_seqs=512,
        on_cpu=False,
        device_memory=150 << 30,
        model_bytes=4 << 30,
    )
    assert settings.arguments(Path("m"), config)["kv_cache_memory_bytes"] == token * 512 * (1024 + 32)
    three = replace(settings, replicas=3).arguments(Path("m"), config)
    assert three["kv_cache_memory_bytes"] == token * 512 * (1024 + 32) // 3
    assert three["max_num_seqs"] == 171
    assert three["gpu_memory_utilization"] == pytest.approx(0.2)
    small = replace(settings, device_memory=80 << 30).arguments(Path("m"), config)
    assert "kv_cache_memory_bytes" not in small  # vLLM then takes what gpu_memory_utilization leaves


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("worker.rollout.replicas=2",), "worker.rollout.replicas=2 is for vllm, but worker.rollout.name=native"),
        (
            ("worker.rollout.name=vllm", "worker.rollout.replicas=2", "worker.rollout.mode=inline"),
            "worker.rollout.replicas=2: several vLLMs share a device",
        ),
        (("worker.rollout.python=p",), "worker.rollout.python=p is for vllm, but worker.rollout.name=native"),
        (("worker.rollout.tensor_parallel_size=2",), "leave it out, or set worker.rollout.name to vllm"),
        (("worker.rollout.mode=inline",), "worker.rollout.mode=inline is for vllm"),
        (("worker.rollout.name=vllm", "worker.rollout.exact=true"), "worker.rollout.exact=true"),
        (("worker.rollout.name=vllm", "worker.rollout.server_address=http://a:1"), "set worker.rollout.mode=server"),
        (
            ("worker.rollout.name=vllm", "worker.rollout.top_p=0.9", "algorithm.rollout_correction=decoupled_token_is"),
            "log-probs among the tokens that are left",
        ),
        (("worker.rollout.name=vllm", "worker.rollout.mode=inline", "worker.rollout.python=p"), "in this interpreter"),
    ],
)
def test_keys_that_do_not_go_together_are_refused(arguments: tuple[str, ...], words: str) -> None:
    check_config(load_config([*PLAIN, "worker.rollout.name=vllm"]))
    with pytest.raises(UserError, match=words):
        check_config(load_config([*PLAIN, *arguments]))


def test_heads_must_be_divided() -> None:
    config = load_config([*PLAIN, "worker.rollout.name=vllm", "worker.rollout.tensor_parallel_size=4"])
    with pytest.raises(
        UserError, match=r"tensor_parallel_size=4: the model has 6 attention heads.*set one of 1, 2, 3, 6"
    ):
        check_vllm(config, LlamaConfig(hidden_size=96, num_attention_heads=6, num_key_value_heads=6))
