"""`whet compare`: what differs between runs, in config and results."""

from __future__ import annotations

from whet.cli.command import Command
from whet.cli.fitting import columns, fitted
from whet.errors import UserError

_HELP = """\
usage: whet compare RUN RUN [RUN ...]

Print the config keys that differ between run folders, and their results. Intervals are 95% by the bootstrap over
validation prompts; differences are paired over the prompts that both runs validated (trainer.log_samples).

Examples:
  whet compare checkpoints/whet/quickstart checkpoints/whet/other
  whet compare runs/a runs/b runs/c
"""


def _run(arguments: list[str]) -> int:
    if any(argument.startswith("-") for argument in arguments) or len(arguments) < 2:
        raise UserError("whet compare takes two or more run folders: whet compare runs/a runs/b")
    from whet.evals.compare import compare
    from whet.plots.runs import read_run

    table, _, sentences = "\n".join(compare([read_run(argument) for argument in arguments])).partition("\n\n")
    print(table)
    if sentences:
        print("", *(fitted(sentence, columns()) for sentence in sentences.splitlines()), sep="\n")
    return 0


COMMAND = Command(summary="print what differs between runs, in config and results", help=_HELP, run=_run)
