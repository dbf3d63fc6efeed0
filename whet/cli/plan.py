"""`whet plan`: memory, time and cost of a run before it starts."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from whet.cli.command import Command
from whet.errors import UserError

if TYPE_CHECKING:
    from whet.config import Config

_HELP = """\
usage: whet plan MODEL|FILE.yaml [key=value ...] [options]
       whet plan simulate [options]

Predict a training run from the model's config alone: memory per GPU, seconds of a step, what to change if it does not fit
(the fastest first), cost. No weights are loaded. MODEL is a folder with a config.json or a common public model (whet
plan --models lists them); keys are those of whet train.

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
  whet plan simulate --help-options

Guide: docs/plan.md
"""
_VALUES = ("--gpu", "--gpus", "--nodes", "--price", "--mean-prompt", "--mean-response", "--lengths")
_SAMPLES = 8  # of a prompt, where only a model is named
_SWITCHES = ("--json", "--models", "--measured")


@dataclass
class _Asked:
    """Arguments of the command, by kind."""

    options: dict[str, str] = field(default_factory=dict)
    switches: set[str] = field(default_factory=set)
    rest: list[str] = field(default_factory=list)

    def number(self, name: str, least: float, whole: bool = False) -> float | None:
        """Return the value of an option as a number."""
        given = self.options.get(name)
        if given is None:
            return None
        try:
            value = float(given)
        except ValueError:
            value = float("nan")
        if not least <= value < float("inf") or (whole and value != int(value)):
            kind = "a whole number" if whole else "a number"
            raise UserError(f"{name} {given}: must be {kind} of at least {least:g}")
        return value


def _run(arguments: list[str]) -> int:
    if arguments and arguments[0] == "simulate":
        from whet.planning.simulate_command import run

        return run(arguments[1:])
    asked = _parse(arguments)
    from whet.planning import report
    from whet.planning.machines import DEFAULT, find_machine

    if "--measured" in asked.switches:
        print(report.measured_table())
        return 0
    machine = find_machine(asked.options.get("--gpu", DEFAULT))
    if "--models" in asked.switches:
        from whet.planning.table import table

        print(table(machine))
        return 0
    from whet.planning.advice import advise
    from whet.planning.lengths import DISTRIBUTIONS
    from whet.planning.planned import Question, make_plan

    kind = asked.options.get("--lengths", "geometric")
    if kind not in DISTRIBUTIONS:
        raise UserError(f"--lengths {kind}: choose one of {', '.join(DISTRIBUTIONS)}")
    question = Question(
        _config(asked),
        machine,
        asked.number("--mean-prompt", 1),
        asked.number("--mean-response", 1),
        kind,
        asked.number("--price", 0),
    )
    plan = make_plan(question)
    advice = advise(plan)
    if "--json" in asked.switches:
        print(json.dumps(report.as_json(plan, advice), indent=2))
    else:
        print(report.text(plan, advice))
    return 0


def _config(asked: _Asked) -> Config:
    from whet.config.jobs import problems_of
    from whet.config.loading.load import load
    from whet.config.problems import raise_problems
    from whet.planning.advice import PLAN_CHECKS
    from whet.planning.planned import MODEL

    arguments = list(asked.rest)
    if "=" not in arguments[0] and not arguments[0].endswith((".yaml", ".yml")):
        arguments[0] = f"{MODEL}={arguments[0]}"
        if not any(argument.startswith(("config=", "worker.rollout.n=")) for argument in arguments):
            arguments.append(f"worker.rollout.n={_SAMPLES}")
    for option, key in (("--gpus", "trainer.n_gpus_per_node"), ("--nodes", "trainer.nnodes")):
        value = asked.number(option, 1, whole=True)
        if value is not None:
            arguments.append(f"{key}={int(value)}")
    loaded = load(arguments)
    raise_problems(problems_of(loaded, PLAN_CHECKS, lambda config: config))
    return loaded.config


def _parse(arguments: list[str]) -> _Asked:
    asked, left = _Asked(), list(arguments)
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if name in _VALUES:
            if not equals and not left:
                raise UserError(f"whet plan: {name} needs a value")
            asked.options[name] = value if equals else left.pop(0)
        elif word in _SWITCHES:
            asked.switches.add(word)
        elif word.startswith("-"):
            raise UserError(f"whet plan has no option {word} (whet plan --help)")
        else:
            asked.rest.append(word)
    if not asked.rest and not asked.switches & {"--models", "--measured"}:
        raise UserError("whet plan takes a model or a config: whet plan Qwen2.5-7B --gpus 8 (whet plan --help)")
    return asked


COMMAND = Command(summary="predict memory, time and cost of a run", help=_HELP, run=_run)
