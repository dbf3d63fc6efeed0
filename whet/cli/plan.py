"""`whet plan`: memory, time and cost of a run before it starts."""

from __future__ import annotations

import json

from whet.cli.command import Command
from whet.errors import UserError

_HELP = """\
usage: whet plan MODEL|FILE.yaml [key=value ...] [options]
       whet plan simulate MODEL|FILE.yaml [key=value ...] [options]

Predict a training run from the model's config alone: memory per GPU, seconds of a step, what to change if it does not
fit (the fastest first), cost. No weights are loaded. MODEL is a folder with a config.json or a common public model
(whet plan --models lists them); keys are those of whet train.

  --gpu NAME          H100-80G (the default), H200-141G, A100-80G, ..., or cpu for this machine's processor
  --gpus N            GPUs of a machine: trainer.n_gpus_per_node
  --nodes N           machines: trainer.nnodes
  --price X           of a GPU and hour, in any currency
  --mean-prompt N     mean length of prompts in tokens; half of data.max_prompt_length otherwise
  --mean-response N   mean length of responses; half of data.max_response_length otherwise
  --lengths KIND      distribution of response lengths: geometric (the default), lognormal, uniform, fixed
  --json              the plan as JSON
  --models            the table of common models on --gpu
  --measured          measured runs beside their predictions

Examples:
  whet plan Qwen2.5-7B --gpus 8 --gpu H100-80G --nodes 4 --price 2.50
  whet plan Qwen3-1.7B data.max_response_length=4096 worker.rollout.n=16 --gpu H200
  whet plan config={examples}/quickstart.yaml --gpu cpu
  whet plan simulate Qwen2.5-7B --gpus 8 data.max_response_length=8192 --mean-response 1500

whet plan simulate plays sampling and learning as events: seconds of a step with all devices colocated, one step off,
and asynchronous, for the best division of the devices.

  --staleness N,N     batches that sampling may be ahead: 1,2,4,8 by default
  --lengths KIND      lognormal (the default), geometric, uniform, fixed, or the folder of a run that logged its samples
  --spread X          sigma of the lognormal distribution: 0.8
  --reward SECONDS    from a group's last token to its rewards
  --decode A,B,C[,D]  measured costs instead of planned ones, in seconds: of a decode step, in it of a sequence and of
                      a cached token; D of a prompt's token
  --update A,B        of an update, and in it of a token on one device; --sync SECONDS: of new weights
  --steps N, --seed N simulated steps, and the seed of the lengths

Guide: docs/plan.md
"""
_VALUES = ("--gpu", "--gpus", "--nodes", "--price", "--mean-prompt", "--mean-response", "--lengths")
_SWITCHES = ("--json", "--models", "--measured")


def _run(arguments: list[str]) -> int:
    if arguments and arguments[0] == "simulate":
        from whet.planning.simulate_command import run

        return run(arguments[1:])
    from whet.planning.options import parse

    options = parse("whet plan", arguments, _VALUES, _SWITCHES)
    from whet.planning import report
    from whet.planning.machines import DEFAULT, find_machine

    if "--measured" in options.switches:
        print(report.measured_table())
        return 0
    machine = find_machine(options.values.get("--gpu", DEFAULT))
    if "--models" in options.switches:
        from whet.planning.table import table

        print(table(machine))
        return 0
    from whet.planning.advice import advise
    from whet.planning.lengths import DISTRIBUTIONS
    from whet.planning.planned import Question, make_plan

    kind = options.values.get("--lengths", "geometric")
    if kind not in DISTRIBUTIONS:
        raise UserError(f"--lengths {kind}: choose one of {', '.join(DISTRIBUTIONS)}")
    means = options.number("--mean-prompt", 1), options.number("--mean-response", 1)
    plan = make_plan(Question(options.config(), machine, *means, kind, options.number("--price", 0)))
    advice = advise(plan)
    if "--json" in options.switches:
        print(json.dumps(report.as_json(plan, advice), indent=2))
    else:
        print(report.text(plan, advice))
    return 0


COMMAND = Command(summary="predict memory, time and cost of a run", help=_HELP, run=_run)
