"""`worker.rollout.*`: the engine that samples responses, and how it samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from whet.config.keys import LARGEST_SEED, about, key
from whet.config.registry import Registry
from whet.config.schema.model import DTYPES

MODES = ("process", "inline", "server")
CUT_SIDES = ("left", "middle", "right")
ENGINES = Registry("worker.rollout.name", "whet.rollout.engines", "SPEC", module="spec", entry_points="whet.engines")
ENVS = Registry("worker.rollout.env", "whet.envs.adapters", "ENV", entry_points="whet.envs")
# Keys of engines that say so; set for any other engine they are refused instead of ignored.
ENGINE_KEYS = (
    "mode",
    "python",
    "exact",
    "speculate",
    "replay_routing",
    "quantization",
    "quantize_learner",
    "kv_cache_dtype",
    "server_address",
    "free_cache_engine",
    "tensor_parallel_size",
    "replicas",
)


@dataclass(frozen=True)
class RolloutConfig:
    """Sampling parameters and the engine's limits."""

    name: str = key(
        "native",
        "the engine that samples, or path.py:SPEC of another",
        choices=lambda: ENGINES.names,
        files="engine.py:SPEC",
    )
    mode: str = key("process", "vllm: a process of its own, inline in this one, or its HTTP server", choices=MODES)
    python: str | None = key(None, "interpreter that has vLLM; null = the one that runs whet")
    n: int = key(1, "samples per prompt", least=1, most=100_000)
    temperature: float = key(1.0, "sampling temperature; 0 is greedy", least=0)
    top_p: float = key(1.0, "sample from the most likely tokens whose probabilities sum to this", above=0, most=1)
    top_k: int = key(-1, "sample from this many most likely tokens; -1 = all", least=1, also=(-1,))
    min_p: float = key(0.0, "leave out tokens less likely than this share of the most likely one", least=0, most=1)
    stop: list[str] = field(default_factory=list, metadata=about("texts that end a response"))
    seed: int = key(1, "seed of sampling", least=0, most=LARGEST_SEED)
    ignore_eos: bool = key(False, "keep sampling past the end-of-sequence token")
    limit_images: int = key(0, "most images in a prompt; 0 = no limit", least=0)
    max_num_seqs: int | None = key(
        None, "samples decoded at once; null = 64 on a CPU, 512 on a GPU", least=1, most=1_000_000
    )
    max_num_batched_tokens: int = key(8192, "prompt tokens read in one pass", least=1)
    max_model_len: int | None = key(None, "longest sequence; null = prompt + response length", least=1, most=20_000_000)
    dtype: str | None = key(None, "dtype of an engine with weights of its own; null = the learner's", choices=DTYPES)
    gpu_memory_utilization: float = key(0.6, "share of a GPU's memory that the engine may use", above=0, most=1)
    enforce_eager: bool = key(False, "decode without CUDA graphs")
    exact: bool = key(False, "sampler and trainer compute the same bits, more slowly; needs a GPU")
    speculate: bool = key(
        False, "native, on a GPU: guess tokens of the last sequences from what was written, and check them together"
    )
    replay_routing: bool = key(
        False, "native, mixtures of experts: the learner sends each token to the experts that it was sampled with"
    )
    quantization: str | None = key(
        None, "native: sample with weights and activations rounded to 8-bit floats", choices=("fp8",)
    )
    quantize_learner: bool = key(False, "with quantization: the learner's forward pass rounds as the sampler does")
    kv_cache_dtype: str | None = key(
        None, "native, on a GPU: keys and values of the cache in 8-bit floats; null = as computed", choices=("fp8",)
    )
    enable_prefix_caching: bool = key(True, "vllm: a prompt's samples share its keys and values")
    enable_chunked_prefill: bool = key(False, "mix parts of long prompts with decoding")
    recompute_cache: bool | None = key(
        None,
        "asynchronous: samples in flight give an update their cache and compute it anew; null = if a GPU is full",
    )
    max_restarts: int = key(
        10,
        "asynchronous, with trainer.placement: replicas of the engine opened again in place of lost ones",
        least=0,
        most=1_000_000,
    )
    server_address: str | None = key(None, "http://host:port of a server that is up; its API key: WHET_SERVER_TOKEN")
    server_timeout: float = key(
        1800.0, "longest wait for one response of a server, in seconds", above=0, most=1_000_000
    )
    server_folder: str | None = key(None, "folder for weights that whet and the server see; null = temporary, here")
    free_cache_engine: bool = key(False, "an SGLang server gives its cache's memory back while whet trains")
    tensor_parallel_size: int = key(1, "devices that share one copy of the model", least=1, most=1024)
    replicas: int = key(1, "vllm: processes that share the device and the prompts", least=1, most=1024)
    disable_log_stats: bool = key(True, "no statistics from the engine")
    disable_tqdm: bool = key(False, "engines draw no progress bar of their own: must be false")
    env: str | None = key(
        None, "environment of episodes: path.py:Class, package.module:Class or NAME:ARGUMENT; null = single turns"
    )
    env_args: dict[str, Any] = field(
        default_factory=dict, metadata=about("keyword arguments of the environment's constructor")
    )
    env_timeout: float = key(60.0, "seconds that one call of an environment may take", above=0, most=1_000_000)
    agent: str | None = key(
        None, "harness that calls the policy over HTTP: path.py:function or package.module:function"
    )
    agent_command: str | None = key(None, "the same as a command line, started for every sample")
    agent_timeout: float = key(600.0, "seconds that a harness may take for one sample", above=0, most=1_000_000)
    max_turns: int = key(16, "most turns of the policy in an episode", least=1, most=1_000_000)
    max_turn_tokens: int | None = key(
        None, "most tokens of one turn; null = what is left of data.max_response_length", least=1, most=10_000_000
    )
    tools: list[str] = field(
        default_factory=list,
        metadata=about("tools: built-in names, path.py:function, mcp:COMMAND or mcp:URL, or a YAML as verl's"),
    )
    tool_args: dict[str, Any] = field(
        default_factory=dict, metadata=about("arguments of tools' constructors, such as {search: {corpus: docs.jsonl}}")
    )
    tool_format: str | None = key(None, "format of calls; null = the one that the chat template writes")
    tool_timeout: float = key(30.0, "seconds that one call of a tool may take", above=0, most=1_000_000)
    max_parallel_calls: int = key(16, "calls of one turn that are run; further ones are refused", least=1, most=10_000)
    max_tool_response_length: int = key(8192, "characters of a tool's result that the policy reads", least=1)
    tool_response_truncate_side: str = key(
        "middle", "what of a longer result is cut: left keeps its end, right its beginning", choices=CUT_SIDES
    )
    interaction: str | None = key(
        None, "YAML of a simulated user (verl's interaction) that answers turns without calls"
    )
    multi_turn: bool = key(False, "verl's switch: true needs tools, an interaction or env, which make the turns")
    val_override_config: dict[str, Any] = field(
        default_factory=dict, metadata=about("sampling parameters for validation, such as {n: 1, temperature: 0}")
    )

    @property
    def plays_episodes(self) -> bool:
        """True if an environment or a harness answers the policy."""
        return self.env is not None or bool(self.tools) or self.interaction is not None or self.has_harness

    @property
    def has_harness(self) -> bool:
        """True if a program calls the policy over HTTP."""
        return self.agent is not None or self.agent_command is not None
