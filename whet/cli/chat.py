"""`whet chat`: talk to a model in the terminal."""

from __future__ import annotations

from whet.cli.command import Command
from whet.errors import UserError

_HELP = """\
usage: whet chat RUN|CHECKPOINT|MODEL [key=value ...]

Talk to a model in the terminal. A run folder stands for its best checkpoint, with the run's own templates, lengths and
sampling parameters. /new starts a new conversation, Ctrl-D or Ctrl-C ends. Messages may come from a pipe, one a line.

  data.format_prompt                the template of a message; null = as it is typed
  data.max_response_length          longest answer, in tokens
  worker.rollout.temperature        0 always writes the likeliest token; worker.rollout.name: the engine

Examples:
  whet chat checkpoints/whet/quickstart
  whet chat checkpoints/whet/quickstart/global_step_50 worker.rollout.temperature=0
  echo "Sort these digits: 5 2 9" | whet chat checkpoints/whet/quickstart
  whet chat whet/quickstart data.max_response_length=64
"""


def _run(arguments: list[str]) -> int:
    from whet.cli.target import names_config, split_target
    from whet.config.jobs import load_job

    target, rest = split_target(arguments)
    if target is None and not names_config(rest):
        raise UserError("whet chat takes a run folder, a checkpoint or a model: whet chat checkpoints/whet/quickstart")
    if target is not None:
        print(target, flush=True)
        rest = [*target.sampling_arguments(own_config=not names_config(rest)), *rest]
    config = load_job("chat", rest)

    from whet.evals.terminal_chat import chat

    chat(config)
    return 0


COMMAND = Command(summary="talk to a run's model, or any other, in the terminal", help=_HELP, run=_run)
