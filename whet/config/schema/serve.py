"""`serve.*`: who may reach `whet serve`, and how much it takes on at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from whet.config.keys import about, key


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
