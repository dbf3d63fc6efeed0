"""How much of a batch goes through the model at once, by the config and by the device."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from transformers import LlamaConfig

from whet.config import Config, load_config
from whet.errors import UserError
from whet.learn.partition import Budget
from whet.planning.models import config_of
from whet.training.device import Placement, choose_placement
from whet.training.memory import check_memory
from whet.training.offloading import _waits
from whet.training.parts import budget

LENGTHS = ("data.max_prompt_length=100", "data.max_response_length=400")
MODEL = LlamaConfig(
    vocab_size=1000,
    hidden_size=512,
    intermediate_size=2048,
    num_hidden_layers=8,
    num_attention_heads=8,
)


class _OnGPU:
    """What `budget` looks at of a model on a CUDA device."""

    device, dtype, config = torch.device("cuda"), torch.bfloat16, MODEL

    def parameters(self) -> list[nn.Parameter]:
        return [nn.Parameter(torch.empty(1_000_000, device="meta"))]


@pytest.fixture
def gigabytes(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A CUDA device whose memory the test chooses."""
    device = SimpleNamespace(total_memory=80 * 10**9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: device)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    return device


def _config(*arguments: str) -> Config:
    return load_config([*LENGTHS, *arguments])


def test_on_a_cpu_samples_of_full_length_are_counted() -> None:
    assert budget(_config()) == Budget(4 * 500, 16 * 500)
    assert budget(_config("worker.actor.micro_batch_tokens=700")) == Budget(700, 700)
    assert budget(_config("worker.actor.dynamic_batching=false")) == Budget(None, None)


def test_a_gpu_is_filled(gigabytes: SimpleNamespace) -> None:
    assert budget(_config(), "actor", _OnGPU()) == Budget(65536, 65536, recompute=False)
    gigabytes.total_memory = 8 * 10**9
    small = budget(_config(), "actor", _OnGPU())
    assert small.tokens_update is not None
    assert small.tokens_update % 1024 == 0
    assert 1024 < small.tokens_update < 32768


def test_what_else_is_trained_takes_its_share(gigabytes: SimpleNamespace) -> None:
    gigabytes.total_memory = 8 * 10**9
    model = _OnGPU()
    model.parameters = lambda: [nn.Parameter(torch.empty(100_000_000, device="meta"))]  # type: ignore[method-assign]
    plain, with_critic, with_reference = (
        budget(_config(*arguments), "actor", model).tokens_update
        for arguments in (
            ["algorithm.kl_coef=0"],
            ["algorithm.kl_coef=0", "algorithm.adv_estimator=gae"],
            ["algorithm.kl_coef=0.1"],
        )
    )
    assert plain is not None
    assert with_critic is not None
    assert with_reference is not None
    assert with_critic < with_reference < plain


def test_the_config_goes_before_the_device(gigabytes: SimpleNamespace) -> None:
    model = _OnGPU()
    assert budget(_config("worker.actor.micro_batch_tokens=700"), "actor", model) == Budget(700, 700, False)
    assert budget(_config("worker.actor.dynamic_batching=false"), "actor", model) == Budget(None, None, False)
    recomputed = _config("worker.actor.model.enable_gradient_checkpointing=true")
    assert budget(recomputed, "actor", model) == Budget(65536, 65536, recompute=True)
    # so many tokens fit only when activations are not kept
    gigabytes.total_memory = 8 * 10**9
    assert budget(_config("worker.actor.micro_batch_tokens=60000"), "actor", model).recompute


@pytest.mark.parametrize(
    ("arguments", "dtype"),
    [
        ([], torch.bfloat16),
        (["worker.actor.optim.strategy=adamw_bf16"], torch.bfloat16),
        (["worker.actor.fsdp.torch_dtype=fp32"], torch.float32),
    ],
)
def test_weights_are_bf16_on_a_gpu_unless_told(
    arguments: list[str], dtype: torch.dtype, gigabytes: SimpleNamespace
) -> None:
    assert choose_placement(_config("trainer.device=cuda", *arguments)).dtype == dtype


def test_weights_are_fp32_on_a_cpu() -> None:
    assert choose_placement(_config("trainer.device=cpu")).dtype == torch.float32


@pytest.mark.parametrize(
    ("keys", "adapters", "words"),
    [
        ((), None, "moments in 8 bits"),
        (("worker.actor.optim.strategy=adamw_8bit",), None, None),
        ((), 1_000_000, None),
    ],
)
def test_a_model_that_does_not_fit_is_refused_before_it_is_loaded(
    gigabytes: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...], adapters: int | None, words: str
) -> None:
    monkeypatch.setattr("whet.training.memory.count_parameters", lambda _path: 7_000_000_000)
    placement = Placement(torch.device("cuda"), torch.bfloat16)
    config = _config("algorithm.disable_kl=true", *keys)
    if words is None:
        check_memory(config, "folder", placement, adapters)
    else:
        with pytest.raises(UserError, match=words) as refused:
            check_memory(config, "folder", placement, adapters)
        assert "91 GiB, and the GPU has 75" in str(refused.value)


class _LargeOnGPU(_OnGPU):
    """The same of a model that has 7 billion parameters."""

    config = config_of("Qwen2.5-7B")

    def parameters(self) -> list[nn.Parameter]:
        return [nn.Parameter(torch.empty(7_615_616_512, device="meta"))]


def test_a_reference_waits_where_updates_need_its_memory(gigabytes: SimpleNamespace) -> None:
    gigabytes.total_memory = 150_000_000_000
    model, small = _LargeOnGPU(), _OnGPU()
    no_kl, kl = _config("algorithm.disable_kl=true"), _config("algorithm.kl_coef=0.1")
    kept = _config("algorithm.kl_coef=0.1", "worker.ref.offload.offload_params=false")
    assert budget(kl, "actor", model) == budget(no_kl, "actor", model) == Budget(11264, 16384, True)
    assert budget(kept, "actor", model).tokens_update == 500  # the longest sample, whatever room there is
    assert budget(kept, "actor", model).tokens_experience == 16384  # without gradients there is room for it
    assert _waits(kl, model)
    assert not _waits(kept, model)
    assert not _waits(kl, small)
    assert _waits(_config("algorithm.kl_coef=0.1", "worker.ref.offload.offload_params=true"), small)


@pytest.mark.parametrize(
    "arguments",
    [
        ["algorithm.kl_penalty=full", "algorithm.use_kl_loss=true"],  # asked in every pass of an update
        ["algorithm.adv_estimator=gae"],  # a critic's plan would have to agree
        ["trainer.n_gpus_per_node=2"],
    ],
)
def test_a_reference_with_company_stays(gigabytes: SimpleNamespace, arguments: list[str]) -> None:
    gigabytes.total_memory = 150_000_000_000
    assert not _waits(_config("algorithm.kl_coef=0.1", *arguments), _LargeOnGPU())


def test_a_reference_that_may_wait_refuses_no_model(
    gigabytes: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whet.training.memory.count_parameters", lambda _path: 5_000_000_000)
    placement = Placement(torch.device("cuda"), torch.bfloat16)
    gigabytes.total_memory = 75 * 10**9
    check_memory(_config("algorithm.kl_coef=0.1"), "folder", placement, None)
    with pytest.raises(UserError, match="take 75 GiB, and the GPU has 70"):
        check_memory(
            _config("algorithm.kl_coef=0.1", "worker.ref.offload.offload_params=false"), "folder", placement, None
        )
