"""`whet doctor`: what is wrong with a run, with evidence and a remedy."""

from __future__ import annotations

from whet.cli.command import Command
from whet.config.options import read_options
from whet.errors import UserError

_HELP = """\
usage: whet doctor RUN [RUN ...] [--json]

Examine runs by their folders, finished, stopped or still going on: prompts whose samples all score the same, responses
that are cut, collapse or grow, entropy that collapses, KL or gradients that explode, ratios that are clipped, log-probs
of sampler and learner that differ, rewards that are slow, samples that are stale, reward that is lost, validation that
falls. Each finding has its steps, the numbers behind it, and what to do. A RUN is a run folder, or a folder of runs.

  --json           one JSON object for each finding instead

Examples:
  whet doctor checkpoints/whet/quickstart
  whet doctor runs --json
"""


def _run(arguments: list[str]) -> int:
    from whet.plots.runs import find_runs

    options = read_options("doctor", arguments, switches=("--json",))
    folders = options.words
    if not folders:
        raise UserError("whet doctor takes run folders: whet doctor checkpoints/whet/quickstart")
    from whet.doctor.examine import examine_run
    from whet.doctor.printing import as_json, as_text

    for run in (run for folder in folders for run in find_runs(folder)):
        found = examine_run(run.folder, run.metrics, run.settings)
        if options.switches:
            print(as_json(run.folder, found), end="")
        else:
            print(as_text(run.folder, sum(row["step"] > 0 for row in run.metrics), found), end="")
    return 0


COMMAND = Command(summary="say what is wrong with a run, with evidence and a remedy", help=_HELP, run=_run)
