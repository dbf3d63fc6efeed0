"""`whet sweep`: runs of every combination of some values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.cli.command import Command
from whet.config.examples import examples_folder
from whet.config.options import read_options

if TYPE_CHECKING:
    from whet.config import Config

_HELP = """\
usage: whet sweep [FILE.yaml] key=a,b,c [key=0..2 ...] [key=value ...] [--dry-run]

Train every combination of the values, one run after the other on this machine (not as Ray jobs), into one folder:
checkpoints/project_name/experiment_name/lr=1e-6,seed=0 and so on. Several values are separated by commas outside
brackets and quotes; 0..2 is 0, 1 and 2. A key may be written by its last part where that is enough; lr is
worker.actor.optim.lr, seed is trainer.seed (all seeds), n is worker.rollout.n.

The same command skips finished runs and resumes stopped ones. A run that fails does not stop the sweep; the exit code
is then 1.

  --dry-run    print the runs and check their configs, and train nothing

Examples:
  whet sweep {examples}/quickstart.yaml lr=3e-4,1e-3 seed=0..2 trainer.experiment_name=lr_sweep
  whet sweep my.yaml adv_estimator=grpo,rloo n=4,8 --dry-run
  whet plot checkpoints/whet/lr_sweep
"""


def _run(arguments: list[str]) -> int:
    from whet.sweeps.grid import read_grid
    from whet.sweeps.runs import INTERRUPTED, plan, run_all

    options = read_options("sweep", arguments, switches=("--dry-run",))
    folder, planned = plan(read_grid(options.words), _load)
    print(f"{len(planned)} runs in {folder}", flush=True)
    if options.switches:
        for each in planned:
            print(f"  {each.name}{'  (finished)' if each.is_finished else ''}")
        return 0
    codes = run_all(planned, lambda line: print(line, flush=True))

    from whet.sweeps.table import table

    print("", *table(folder, codes, [each.name for each in planned]), sep="\n")
    failed = [name for name, code in codes.items() if code not in (0, INTERRUPTED)]
    if failed:
        print(f"{len(failed)} of {len(planned)} runs failed: {', '.join(failed)}; the same command tries them again")
    if INTERRUPTED in codes.values():
        print("stopped; the same command goes on from here")
        return INTERRUPTED
    print(f"curves: whet plot {folder}")
    return 1 if failed else 0


def _load(arguments: list[str]) -> Config:
    from whet.config.jobs import load_job

    return load_job("train", arguments, examples_folder())


COMMAND = Command(summary="train every combination of some values, seeds included", help=_HELP, run=_run)
