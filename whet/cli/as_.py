"""`whet as`: run a script of verl, EasyR1, VPPO-RL or Skywork-OR1 unchanged."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field

from whet.cli.command import COMMANDS, Command
from whet.errors import UserError

_HELP = """\
usage: whet as verl|easyr1|vppo|or1 [--fixed] [--set key=value ...] -- COMMAND ...

Run another system's script as it is. Inside it, `python3 -m verl.trainer.main_ppo`, `verl.trainer.main`,
`main_generation`, `main_eval`, `fsdp_sft_trainer` and `sft_trainer` (also under torchrun and `ray job submit`),
`model_merger` and the asynchronous mains are whet's. Everything else that the script does happens as it would. A folder
first on the PATH does it: nothing is installed, and an installed verl is not touched. A Python that is called by its
whole path is not intercepted.

Keys are translated, and where the command is silent the other system's defaults apply (whet check shows all of it).
algorithm.match is set to the system, which reproduces its numbers.

  --fixed            whet's numbers instead: algorithm.match=whet
  --set key=value    a key of whet's own, for every job of the script

Examples:
  whet as verl -- bash examples/grpo_trainer/run_qwen2-7b.sh
  whet as verl --set worker.rollout.name=vllm -- bash run.sh trainer.total_epochs=1
  whet as easyr1 -- python3 -m verl.trainer.main config=examples/config.yaml trainer.max_steps=10

Key tables: docs/coming-from
"""


@dataclass
class _Options:
    fixed: bool = False
    settings: list[str] = field(default_factory=list)

    @property
    def arguments(self) -> list[str]:
        return [*(["--fixed"] if self.fixed else []), *(part for each in self.settings for part in ("--set", each))]


def _run(arguments: list[str]) -> int:
    if "--" not in arguments:
        raise UserError("whet as: put the command after --, as in whet as verl -- bash run.sh")
    at = arguments.index("--")
    before, command = arguments[:at], arguments[at + 1 :]
    if before[:1] == ["--entry"]:
        return _enter(before[1], before[2], _options(before[3:]), command)
    if not before or before[0].startswith("-"):
        raise UserError("whet as: name the system first, as in whet as verl -- bash run.sh")
    if not command:
        raise UserError("whet as: nothing follows --; name the command, as in whet as verl -- bash run.sh")

    from whet.compat.shim import shimmed
    from whet.compat.systems import system_of

    with shimmed(system_of(before[0]), _options(before[1:]).arguments) as shim:
        try:
            return subprocess.call(command, env=shim.environment)
        except OSError as error:
            raise UserError(f"{command[0]}: cannot be run: {error.strerror}") from error


def _options(arguments: list[str]) -> _Options:
    made = _Options()
    waiting = iter(arguments)
    for argument in waiting:
        if argument == "--fixed":
            made.fixed = True
        elif argument == "--set":
            made.settings.append(_setting(next(waiting, "")))
        elif argument.startswith("--set="):
            made.settings.append(_setting(argument.removeprefix("--set=")))
        else:
            raise UserError(f"whet as has no option {argument} (whet as --help)")
    return made


def _setting(text: str) -> str:
    if "=" not in text:
        raise UserError(f"--set {text}: expected key=value with a key of whet's")
    return text


def _enter(system: str, module: str, options: _Options, arguments: list[str]) -> int:
    """Run one intercepted call."""
    from whet.compat.run import job_of, show_report
    from whet.system.launch import launched, refuse_command

    torchrun = launched() is not None
    job = job_of(system, module, arguments, options.fixed, options.settings, torchrun)
    show_report(job, lambda line: print(line, file=sys.stderr, flush=True))
    command = COMMANDS.find(job.name)
    if not command.under_torchrun:
        refuse_command(job.name)
    code = command.run(job.arguments)
    if code == 0 and job.name == "generate" and job.translation is not None:
        from whet.compat.outputs import list_responses

        list_responses(job.translation, print)
    return code


COMMAND = Command(
    summary="run a script of verl, EasyR1, VPPO-RL or Skywork-OR1 as it is", help=_HELP, run=_run, under_torchrun=True
)
