"""`whet generate`: samples of every prompt in a file."""

from __future__ import annotations

from whet.cli.command import Command

_HELP = """\
usage: whet generate [RUN|CHECKPOINT|MODEL] [config=FILE] [key=value ...]

Sample responses to every prompt, to a jsonl or Parquet file. The output appears when it is complete. Until then
finished prompts are in OUTPUT.part, and the same command resumes from there. A run folder stands for its best
checkpoint, with the run's own template, lengths and sampling parameters.

  worker.actor.model.model_path     folder, hub id or built-in name of the model
  generate.files, generate.output   files in, file out
  data.prompt_key, data.format_prompt, data.max_response_length   column, template, longest response
  worker.rollout.n, .temperature    how to sample; worker.rollout.name: the engine

Examples:
  whet generate checkpoints/whet/quickstart generate.files=whet/quickstart@test generate.output=samples.jsonl
  whet generate config={examples}/quickstart.yaml generate.files=rows.jsonl generate.output=samples.parquet

Every key: whet config. Guide: docs/generate.md
"""


def _run(arguments: list[str]) -> int:
    from whet.cli.target import names_config, split_target
    from whet.config.jobs import load_job

    target, rest = split_target(arguments)
    if target is not None:
        print(target, flush=True)
        rest = [*target.sampling_arguments(own_config=not names_config(rest)), *rest]
    config = load_job("generate", rest)

    from whet.evals.generate import generate

    generate(config)
    return 0


COMMAND = Command(summary="write samples of every prompt in a file to another file", help=_HELP, run=_run)
