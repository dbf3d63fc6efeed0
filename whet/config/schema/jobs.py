"""Sections of the other jobs: `sft.*`, `generate.*`, `eval.*` and `serve.*`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from whet.config.keys import about, key, section


@dataclass(frozen=True)
class ServeConfig:
    """The address of the server, its token and its limits."""

    host: str = key("127.0.0.1", "address to listen on; any that is not this machine's own needs serve.allow_remote")
    port: int = key(8000, "port to listen on; 0 = any that is free", least=0, most=65535)
    allow_remote: bool = key(
        False, "let other machines connect; needs a token in serve.token_file or $WHET_SERVE_TOKEN"
    )
    allowed_hosts: list[str] = field(
        default_factory=list,
        metadata=about("names in Host and Origin headers that are answered besides localhost and serve.host; * = any"),
    )
    token_file: str | None = key(None, "file that holds the bearer token; null = $WHET_SERVE_TOKEN, or a random one")
    model_name: str | None = key(None, "what the model is called in the API; null = the last part of its path")
    version: int = key(0, "version of the weights that are served first", least=0)
    engine_process: bool | None = key(
        None, "run the native engine in a process of its own, where HTTP does not hold it up; null = on a GPU"
    )
    weights_folder: str | None = key(None, "POST /v1/weights takes folders inside this one only; null = any")
    max_concurrent: int | None = key(
        None,
        "requests decoded at once; null = worker.rollout.max_num_seqs, as far as memory goes",
        least=1,
        most=1_000_000,
    )
    max_queued: int = key(256, "requests that may wait; one more is answered with 429", least=0, most=1_000_000)
    max_samples: int = key(128, "most samples of one prompt (n)", least=1, most=100_000)
    max_tokens: int | None = key(
        None,
        "most tokens of a response, which end it as max_tokens does; null = the room that the prompt leaves",
        least=1,
    )
    max_answer_tokens: int = key(
        4194304,
        "most tokens of several responses: their number times max_tokens, a log-prob counting for 8",
        least=1,
    )
    max_images: int = key(16, "most images of one request; see worker.rollout.limit_images too", least=0)
    max_pixels: int = key(32000000, "most pixels of all images of one request, as they are sent", least=1)
    max_body_mb: float = key(
        8.0, "largest body of a request in MB; a larger one is answered with 413", above=0, most=100_000
    )
    request_timeout: float = key(
        600.0, "longest time for one request in seconds, waiting included", above=0, most=1_000_000
    )
    header_timeout: float = key(
        10.0, "longest time for a request's head to arrive, in seconds", above=0, most=1_000_000
    )
    body_timeout: float = key(30.0, "longest time for a request's body to arrive, in seconds", above=0, most=1_000_000)
    write_timeout: float = key(
        30.0,
        "seconds in which a client must read half of what waits for it, or 64 KiB, to stay connected",
        above=0,
        most=1_000_000,
    )
    shutdown_timeout: float = key(
        30.0, "seconds that requests have to finish once the server was told to end", least=0, most=1_000_000
    )


@dataclass(frozen=True)
class SftConfig:
    """Where demonstrations are in a row, and what of them is learned."""

    messages_key: str | None = key(
        "messages", "column with whole chats; rows without it have data.prompt_key and response_key"
    )
    response_key: str = key("response", "column with the response to the prompt")
    tools_key: str = key("tools", "column with the tools that a chat may call")
    format_response: str | None = key(None, "Jinja file that turns a row into the response's text")
    train_on: str = key("all", "which of the assistant's turns are learned", choices=("all", "last"))
    batch_size: int | None = key(None, "rows per update; null = data.rollout_batch_size", least=1, most=10_000_000)


@dataclass(frozen=True)
class GenerateConfig:
    """Prompts in, samples out. How many and how they are drawn says `worker.rollout`."""

    files: str = key("", "prompts, named like data.train_files; an answer column may be missing")
    output: str | None = key(
        None, "file for the samples, .jsonl or .parquet; null = generations.jsonl in the run folder"
    )
    token_ids: bool = key(False, "write the token ids and their log-probs with each sample")


@dataclass(frozen=True)
class ApiConfig:
    """A server that speaks OpenAI's chat completions: `whet serve`, or anybody's."""

    base_url: str | None = key(None, "address up to /v1, such as http://127.0.0.1:8000/v1")
    model: str | None = key(None, "the model's name there; null = the first that the server lists")
    key_env: str = key("WHET_API_KEY", "environment variable that holds the API key")
    concurrency: int = key(16, "requests at once", least=1, most=10_000)
    requests_per_minute: float | None = key(None, "most requests begun in a minute; null = no limit", above=0)
    retries: int = key(
        6, "further tries of a request that failed for a while (408, 429, 5xx, no connection)", least=0, most=1000
    )
    timeout: float = key(600.0, "seconds that one request may take", above=0, most=1_000_000)
    seed: bool = key(True, "send a seed with each request; false for servers that refuse it")
    max_tokens_key: str = key(
        "max_tokens",
        "name under which the longest response is sent",
        choices=("max_tokens", "max_completion_tokens"),
    )
    extra_body: dict[str, Any] = field(
        default_factory=dict, metadata=about("further fields of each request, such as {reasoning_effort: low}")
    )


@dataclass(frozen=True)
class EvalConfig:
    """Which data sets, who answers, and what is reported. Sampling is that of validation."""

    datasets: list[str] = field(
        default_factory=list, metadata=about("names of data sets, built-in or of definitions; [] = data.val_files")
    )
    definitions: dict[str, Any] = field(
        default_factory=dict, metadata=about("data sets of your own, or changes to built-in ones: {name: {files: ...}}")
    )
    responses: str | None = key(None, "score the responses in this file, and sample nothing")
    response_key: str = key("response", "column of that file with a response, or with a list of them")
    via: str = key(
        "engine", "who answers: worker.rollout's engine with the model, or a server", choices=("engine", "api")
    )
    api: ApiConfig = field(default_factory=ApiConfig, metadata=section("the server that answers where via is api"))
    n: int | None = key(None, "samples per question; null = the data set's, else validation's", least=1, most=100_000)
    limit: int | None = key(None, "only the first so many rows of each data set", least=1)
    confidence: float = key(0.95, "share of bootstrap draws inside an interval", above=0, below=1)
    draws: int = key(1000, "draws of the bootstrap over questions", least=1, most=1_000_000)
    output: str | None = key(None, "folder for the report; null = eval in the run folder")
