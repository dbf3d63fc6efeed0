"""`whet eval`: scores on data sets, and a report."""

from __future__ import annotations

from whet.cli.command import Command
from whet.config.examples import examples_folder

_HELP = """\
usage: whet eval [RUN|CHECKPOINT|MODEL] [config=FILE] [key=value ...]
       whet eval --list

Score a model, a server or a file of responses on data sets, and write a report: report.md, report.json and scores.csv
in eval.output. The same command resumes after a kill. --list prints the built-in data sets. A run folder stands for its
best checkpoint, on the run's own validation data, template and reward function; its report is in RUN/eval.

  eval.datasets                     built-in data sets and those of eval.definitions; without them data.val_files
  eval.via, eval.api.base_url       engine (the model), or api (a server that is up)
  eval.responses                    a file with responses that exist already
  worker.rollout.*, data.*          as in validation

Examples:
  whet eval checkpoints/whet/quickstart
  whet eval config={examples}/quickstart.yaml
  whet eval org/model eval.datasets=[gsm8k,aime24]
  whet eval eval.via=api eval.api.base_url=http://host:8000/v1 eval.datasets=[mathvista]
  whet eval eval.responses=samples.jsonl eval.datasets=[gsm8k]

Every key: whet config. Guide: docs/eval.md
"""


def _run(arguments: list[str]) -> int:
    from whet.cli.target import names_config, split_target
    from whet.config.jobs import load_job

    if arguments == ["--list"]:
        from whet.evals.registry import listing

        print(listing())
        return 0
    target, rest = split_target(arguments)
    if target is not None:
        print(target, flush=True)
        rest = [*target.sampling_arguments(own_config=not names_config(rest)), *target.report_arguments(), *rest]
    config = load_job("eval", rest)

    from whet.evals.evaluate import evaluate

    evaluate(config, examples_folder())
    return 0


COMMAND = Command(
    summary="score a run, a model, a server or a file of responses, and write a report", help=_HELP, run=_run
)
