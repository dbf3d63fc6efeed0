"""`whet serve`: OpenAI's API for a model."""

from __future__ import annotations

from whet.cli.command import Command

_HELP = """\
usage: whet serve RUN|CHECKPOINT|MODEL [config=FILE] [key=value ...]

OpenAI's API on this machine, for a run, a checkpoint, a model folder or a hub id. A run folder stands for its best
checkpoint, with the run's own chat template and sampling parameters. POST /v1/weights replaces the weights while it
serves; /metrics and /openapi.json are there too. Ctrl-C or SIGTERM lets requests finish.

  serve.host, serve.port                  127.0.0.1 and 8000; another address needs serve.allow_remote=true
  serve.token_file                        the bearer token; without it $WHET_SERVE_TOKEN, or one that is printed
  serve.max_concurrent, serve.max_queued  requests at once, and in the queue before others get 429
  worker.rollout.*                        the engine (native or vllm), its memory, and how to sample by default

Examples:
  whet serve whet/quickstart serve.port=8000
  whet serve checkpoints/whet/quickstart
  whet serve checkpoints/whet/quickstart/global_step_50 serve.port=0

Every key: whet config. Guide: docs/serve.md
"""


def _run(arguments: list[str]) -> int:
    from whet.cli.target import names_config, split_target
    from whet.config.checks.serve import check_libraries
    from whet.config.jobs import load_job

    target, rest = split_target(arguments)
    if target is not None:
        print(target, flush=True)
        rest = [*target.serving_arguments(own_config=not names_config(rest)), *rest]
    config = load_job("serve", rest)
    check_libraries()

    from whet.serving.server import serve

    try:
        serve(config, lambda text: print(text, flush=True))
    except KeyboardInterrupt:  # before the server takes signals itself
        print("stopped before it served", flush=True)
        return 130
    return 0


COMMAND = Command(summary="serve a run's model, or any other, over OpenAI's API on this machine", help=_HELP, run=_run)
