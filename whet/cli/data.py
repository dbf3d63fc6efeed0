"""`whet data`: prepare data sets, and keep rows by difficulty."""

from __future__ import annotations

from whet.cli.command import Command
from whet.errors import UserError

_HELP = """\
usage: whet data NAME [options]
       whet data filter INPUT OUTPUT [options] [MODEL|RUN] [config=FILE] [key=value ...]
       whet data --list

Prepare a data set: read its files, write one file a split in whet's or verl's columns, and a card (README.md) that says
what was done. --list prints the data sets.

  --from PATH          file or folder in the columns of the hub's files; without it the hub (pip install whet[hub])
  --split NAME[,NAME]  which splits; a file that names none needs it
  --output DIR         data/NAME
  --schema NAME        whet (prompt, answer) or verl (a chat, reward_model.ground_truth)
  --format NAME        parquet, jsonl, json or pkl
  --limit N            rows of each split
  --shuffle, --seed N  in another order
  --data-source NAME   of rows that have no such column

`whet data filter` keeps the rows of INPUT in a band of difficulty and writes them to OUTPUT. It samples every prompt n
times with a model, scores the samples as whet eval does, and writes the fraction of right ones as a column. The same
command resumes after a kill.

  --n N                samples of each prompt (16)
  --keep LOW..HIGH     fractions that stay, both included (what is neither always right nor always wrong)
  --column NAME        where the fraction is written (pass_rate)
  --by COLUMN          sample nothing: keep rows whose COLUMN is within --keep, numbers or texts such as dates

Examples:
  whet data gsm8k --from downloads/gsm8k --output data/gsm8k
  whet data dapo17k --schema verl
  whet data filter train.pkl kept.pkl --keep 1..15 --by extra_info.model_difficulty.DeepSeek-R1-Distill-Qwen-7B
  whet data filter train.parquet kept.parquet --n 16 worker.actor.model.model_path=org/model
"""


def _run(arguments: list[str]) -> int:
    if arguments == ["--list"]:
        from whet.prepare.listing import listing

        print(listing())
        return 0
    if not arguments or arguments[0].startswith("-"):
        raise UserError("whet data takes the name of a data set, or filter: whet data gsm8k (whet data --list)")
    if arguments[0] == "filter":
        return _filter(arguments[1:])
    from whet.prepare.job import prepare
    from whet.prepare.options import parse

    prepare(parse(arguments[0], arguments[1:]), print)
    return 0


def _filter(arguments: list[str]) -> int:
    from whet.prepare.filtering import keep_rows, parse

    options, rest = parse(arguments)
    if options.by is not None:
        if rest:
            raise UserError(f"whet data filter --by samples nothing, so {rest[0]} has no effect: leave it out")
        keep_rows(options, None, print)
        return 0
    from whet.cli.target import names_config, split_target
    from whet.config.examples import examples_folder
    from whet.config.jobs import load_job

    target, rest = split_target(rest)
    if target is not None:
        print(target, flush=True)
        rest = [*target.sampling_arguments(own_config=not names_config(rest)), *rest]
    config = load_job("eval", [*rest, *options.eval_arguments()])

    from whet.evals.difficulty import pass_rates

    keep_rows(options, pass_rates(config, examples_folder()), print)
    return 0


COMMAND = Command(summary="prepare a data set, or keep its rows by difficulty", help=_HELP, run=_run)
