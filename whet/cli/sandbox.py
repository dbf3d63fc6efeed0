"""`whet sandbox`: run model-written programs confined, once or behind an HTTP API."""

from __future__ import annotations

from whet.cli.command import Command

_HELP = """\
usage: whet sandbox FILE [options]
       whet sandbox --layers
       whet sandbox serve [options]

Run a program confined and print one JSON line: status, exit code, stdout, stderr, seconds, and what was refused. FILE
ends in .py, .cpp or .sh, or --language names its language. --layers prints what this machine can confine programs by.

  --stdin FILE         what the program reads
  --timeout S          seconds it may run (10)
  --memory MB          memory of all its processes (512)
  --processes N        processes and threads at once (32)
  --output BYTES       of stdout, and as many of stderr (1048576)
  --language NAME      python, cpp or bash
  --confine LAYERS     auto, namespaces or landlock

Exit code 0 if the program was run, whatever came of it; 2 if nothing could be run.

`whet sandbox serve` is a server with Sandbox Fusion's HTTP API (POST /run_code). Clients send Authorization: Bearer
TOKEN.

  --host ADDRESS       127.0.0.1; another one needs --allow-remote and a token of yours
  --port N             8080; 0 = any that is free
  --workers N          programs at once (the number of cores)
  --confine LAYERS     as above
  --timeout S          the longest run_timeout that is granted (60)
  --memory MB          the largest memory_limit_MB that is granted, and the default (1024)
  --token-file FILE    the bearer token, made if missing; without it $WHET_SANDBOX_TOKEN, or one that is printed
  --allow-remote       let other machines connect

Examples:
  whet sandbox --layers
  whet sandbox program.py --stdin input.txt --timeout 2
  whet sandbox serve --port 8080

Guide: docs/sandbox.md
"""


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["serve"]:
        from whet.serving.fusion_command import run as serve

        return serve(arguments[1:])
    from whet.sandbox.command import run

    return run(arguments)


COMMAND = Command(summary="run a model-written program confined, without network and files", help=_HELP, run=_run)
