"""`whet reward`: measure a reward."""

from __future__ import annotations

from whet.cli.command import Command
from whet.config.problems import hint
from whet.errors import UserError

_HELP = """\
usage: whet reward bench DATA [options] [config=FILE] [key=value ...]

Run a reward over the rows of DATA and a file of responses, and print: samples per second, percentiles of the time of a
call, agreement with labels, where two rewards differ, and which planted hacks are paid. The reward is the config's, or
--reward: a scorer's name or path.py:function. Without either each row's data_source chooses.

  --responses FILE        rows with a response (or a list) each, matched by uid, by prompt or by position; without it
                          the column of DATA's own rows, as whet generate writes them
  --response-column NAME  response
  --reward SPEC           the reward
  --against SPEC          another one to compare with; data_source = the scorers of each row's source
  --label COLUMN          true or false for each response: is it right?
  --hack-rows N           rows on which hacks are tried (5; 0 = none)
  --strict                exit with 1 if a hack is paid
  --json FILE             write everything as JSON; - prints it

Examples:
  whet reward bench gsm8k.parquet data.prompt_key=question --reward gsm8k
  whet reward bench data.parquet --responses samples.jsonl --label correct --json bench.json
  whet reward bench samples.jsonl --reward math --against mine.py:compute_score
"""


def _run(arguments: list[str]) -> int:
    if arguments[:1] != ["bench"]:
        near = hint(arguments[0], ("bench",)) if arguments else ""
        raise UserError(f"whet reward has one subcommand, bench{near}: whet reward bench DATA (whet reward --help)")
    from whet.evals.rewards.command import run

    return run(arguments[1:])


COMMAND = Command(summary="measure a reward: speed, agreement, and hacks that it pays", help=_HELP, run=_run)
