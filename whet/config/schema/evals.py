"""`generate.*` and `eval.*`: what `whet generate` and `whet eval` read besides `data`, `worker` and `trainer`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from whet.config.keys import about, key, section


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
    """Data sets, responder and report of `whet eval`. Sampling is that of validation."""

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
