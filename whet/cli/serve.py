"""`whet serve`: OpenAI's API for a model."""

from __future__ import annotations

from whet.cli.command import Command

_HELP = """\
usage: whet serve MODEL [config=FILE] [key=value ...]

OpenAI's API on this machine, for a model folder, a checkpoint or a hub id. POST /v1/weights replaces the weights while
it serves; /metrics and /openapi.json are there too. Ctrl-C or SIGTERM lets requests finish.

  serve.host, serve.port                  127.0.0.1 and 8000; another address needs serve.allow_remote=true
  serve.token_file                        the bearer token; without it $WHET_SERVE_TOKEN, or one that is printed
  serve.max_concurrent, serve.max_queued  requests at once, and in the queue before others get 429
  worker.rollout.*                        the engine (native or vllm), its memory, and how to sample by default

Examples:
  whet serve whet/quickstart serve.port=8000
  whet serve checkpoints/whet/quickstart/global_step_50 serve.port=8000

Every key: whet config. Guide: docs/serve.md
"""


def _run(arguments: list[str]) -> int:
    from whet.config import load_config
    from whet.config.check_serve import check_libraries, check_serve, check_serve_files
    from whet.serving.naming import model_argument

    if arguments and "=" not in arguments[0] and not arguments[0].startswith("-"):
        arguments = [model_argument(arguments[0]), *arguments[1:]]
    config = load_config(arguments)
    check_serve(config)
    check_serve_files(config)
    check_libraries()

    from whet.serving.server import serve

    serve(config, lambda text: print(text, flush=True))
    return 0


COMMAND = Command(summary="serve a model over OpenAI's API on this machine", help=_HELP, run=_run)
