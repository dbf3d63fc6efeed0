"""`worker.*.fsdp.*` and `worker.*.offload.*`: how weights are spread over devices and in which precision."""

from __future__ import annotations

from dataclasses import dataclass

from whet.config.keys import key

DTYPES = ("bf16", "bfloat16", "fp16", "float16", "fp32", "float32")


@dataclass(frozen=True)
class FSDPConfig:
    """Sharding over devices, and the precision of weights."""

    enable_full_shard: bool = key(True, "shard weights, gradients and optimizer; false shards the last two only")
    enable_cpu_offload: bool = key(
        False, "keep shards in host memory and move them layer by layer; reference on one device: as offload_params"
    )
    enable_rank0_init: bool = key(True, "read weights on the first rank only and send them to the others")
    use_orig_params: bool = key(False, "shards always are the original parameters (FSDP2): must be false")
    torch_dtype: str | None = key(
        None, "dtype of the trained weights; null = bf16 on a GPU, fp32 on a CPU (bf16 with adamw_bf16)", choices=DTYPES
    )
    fsdp_size: int = key(-1, "devices in a sharding group; -1 = all", least=1, also=(-1,))
    mp_param_dtype: str = key("bf16", "dtype of forward and backward passes on GPUs", choices=DTYPES)
    mp_reduce_dtype: str = key("fp32", "dtype in which gradients are summed over devices", choices=DTYPES)
    mp_buffer_dtype: str = key("fp32", "dtype of buffers", choices=DTYPES)


@dataclass(frozen=True)
class OffloadConfig:
    """Tensors offloaded to host memory while the rollout runs."""

    offload_params: bool = key(False, "move weights to host memory when they are not used")
    offload_optimizer: bool = key(False, "move the optimizer's state to host memory when it is not used")
