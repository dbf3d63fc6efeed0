"""Arguments of vLLM, and a folder with the model's config and tokenizer but no weights.

Weights only ever come from the learner, so there is no moment at which vLLM could sample with those of a file.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig, PreTrainedTokenizerBase
from transformers.utils import cached_file

from whet.errors import UserError
from whet.rollout.engines.vllm import child
from whet.system import private

CHILD = Path(child.__file__).parent
EXTENSION = "whet_vllm_extension.WhetExtension"
_PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")
_LEAST_CACHE, _MOST_CACHE = 1 << 28, 1 << 32  # bytes of a CPU's cache
_BLOCK = 32  # tokens; the cache is given out in blocks of 16
_BESIDES = 3 << 30  # bytes of a vLLM on a GPU besides weights and cache: activations, graphs, the CUDA context
_FIND = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"


@dataclass(frozen=True, slots=True)
class Settings:
    """The keys of `worker.rollout` that vLLM is told, and where it runs."""

    mode: str = "process"
    python: str | None = None  # the interpreter that has vLLM; None is this one
    dtype: str = "float32"
    max_model_len: int = 2048
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 8192
    gpu_memory_utilization: float = 0.6
    tensor_parallel_size: int = 1
    enforce_eager: bool = False
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = False
    disable_log_stats: bool = True
    trust_remote_code: bool = False
    on_cpu: bool = True
    replicas: int = 1  # vLLMs that share the device
    device_memory: int = 0  # bytes of the GPU
    model_bytes: int = 0  # of the weights, as vLLM holds them
    limit_images: int = 0  # most images of a prompt; 0 leaves it to vLLM
    processor_from: str | None = None  # where a model that sees comes from: its processor's files lie there
    weights_at_hand: bool = False  # the learner can be asked for its weights at any time, without other ranks

    def check(self) -> None:
        """Find vLLM before anything is loaded; UserError where it is not."""
        key = "worker.rollout.python" if self.python else "worker.rollout.name=vllm"
        if self.mode == "inline" and self.python:
            raise UserError(
                f"worker.rollout.python={self.python}: worker.rollout.mode=inline runs vLLM in this interpreter; "
                "leave the one out or set the other to process"
            )
        try:
            found = subprocess.run([self.interpreter, "-c", _FIND], capture_output=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UserError(f"worker.rollout.python={self.python}: it could not be run: {error}") from None
        if found.returncode:
            raise UserError(
                f"{key}: {self.interpreter} has no vLLM. Install it there, or set worker.rollout.python to the "
                "interpreter of an environment that has it (it may be another than whet's)"
            )
        if self.processor_from is not None:
            self._check_sight(key)

    def _check_sight(self, key: str) -> None:
        """vLLM's classes of models that see cannot be imported without torchvision, though whet needs none of it."""
        look = subprocess.run([self.interpreter, "-c", "import torchvision"], capture_output=True, timeout=300)
        if look.returncode:
            words = look.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no reason given"]
            raise UserError(
                f"{key}: vLLM reads images with torchvision, which {self.interpreter} cannot import ({words[0]}). "
                "Install the one that belongs to its torch, or set worker.rollout.name=native"
            )

    @property
    def interpreter(self) -> str:
        """The Python that runs vLLM."""
        return self.python or sys.executable

    def arguments(self, folder: Path, config: PretrainedConfig) -> dict[str, Any]:
        """vLLM's engine arguments, by its names."""
        sequences = -(-self.max_num_seqs // self.replicas)
        tokens = max(self.max_num_batched_tokens, sequences)
        if not self.enable_chunked_prefill:
            tokens = max(tokens, self.max_model_len)  # a prompt must then fit into one pass
        chosen: dict[str, Any] = {
            "model": str(folder),
            "load_format": "dummy",
            "generation_config": "vllm",
            "dtype": self.dtype,
            "max_model_len": self.max_model_len,
            "max_num_seqs": sequences,
            "max_num_batched_tokens": tokens,
            "gpu_memory_utilization": self.gpu_memory_utilization / self.replicas,
            "tensor_parallel_size": self.tensor_parallel_size,
            "enforce_eager": self.enforce_eager,
            "enable_prefix_caching": self.enable_prefix_caching,
            "enable_chunked_prefill": self.enable_chunked_prefill,
            "disable_log_stats": self.disable_log_stats,
            "trust_remote_code": self.trust_remote_code,
            "logprobs_mode": "processed_logprobs",  # at the sampling temperature
            "worker_extension_cls": EXTENSION,
            "distributed_executor_backend": "mp" if self.tensor_parallel_size > 1 else "uni",
        }
        if self.processor_from is not None:
            chosen["mm_processor_cache_gb"] = 0  # vLLM processes no image itself
            chosen["skip_mm_profiling"] = self.on_cpu  # on a GPU it finds out how much memory images need
            if self.limit_images:
                chosen["limit_mm_per_prompt"] = {"image": self.limit_images}
        cache = self._cpu_cache(config) if self.on_cpu else self._gpu_cache(config)
        if cache is not None:
            chosen["kv_cache_memory_bytes"] = cache
        return chosen

    def environment(self) -> dict[str, str]:
        """Environment variables for a process that runs vLLM; what the user set stays."""
        paths = [str(CHILD), os.environ.get("PYTHONPATH", "")]
        ours = {
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_HOST_IP": "127.0.0.1",  # all of its processes are on this machine, and nobody else's business
            "VLLM_RPC_BASE_PATH": str(private.folder()),  # its Unix sockets
            "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        }
        return ours | os.environ | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}

    def _cpu_cache(self, config: PretrainedConfig) -> int:
        """Bytes of keys and values for every sequence at its longest, within limits: host memory is shared."""
        wanted = self._token_bytes(config) * self.max_num_seqs * (self.max_model_len + 256)
        return min(max(_LEAST_CACHE, wanted), _MOST_CACHE) // self.replicas

    def _gpu_cache(self, config: PretrainedConfig) -> int | None:
        """Bytes for every sequence of one vLLM at its longest; None, and vLLM takes its share, where those do not fit.

        A cache that is larger than it can ever fill only takes longer to wake.
        """
        wanted = self._token_bytes(config) * self.max_num_seqs * (self.max_model_len + _BLOCK)
        share = self.gpu_memory_utilization * self.device_memory
        if wanted + self.replicas * (self.model_bytes + _BESIDES) > share:
            return None
        return max(_LEAST_CACHE, wanted // self.replicas)

    def _token_bytes(self, config: PretrainedConfig) -> int:
        """Bytes of one token's keys and values; more than models with windows or states of another kind need."""
        text = config.get_text_config()
        heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
        head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        return 2 * text.num_hidden_layers * heads * head_dim * (4 if self.dtype == "float32" else 2)


def write_folder(
    folder: Path, config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase, processor_from: str | None = None
) -> None:
    """The model's config as the learner has it, its tokenizer, and the settings of its processor as they are."""
    config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if processor_from is None:
        return
    for name in _PROCESSOR_FILES:
        found = cached_file(processor_from, name, _raise_exceptions_for_missing_entries=False)
        if found is not None:
            shutil.copyfile(found, folder / name)
