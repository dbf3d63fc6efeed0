"""`whet check`: everything that can be known of a run before any weight is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from whet.cli.command import Command
from whet.config.examples import examples_folder
from whet.errors import UserError

if TYPE_CHECKING:
    from whet.compat.checking import Checked

_HELP = """\
usage: whet check [train|sft|generate|eval] [FILE.yaml] [key=value ...]
       whet check --as verl|easyr1|vppo|or1 SCRIPT [ARGS ...]
       whet check --commands FILE.json [--json OUT]

Check a run without weights and without a GPU, and exit with 0 if it would start, else with 2. All problems are printed,
not only the first.

The first form checks keys and paths, the model's config, the engine, data rows and templates, the reward function on
real rows, and room on the disk. Nothing is written to the run folder.

--as runs another system's script, in which calls of python, torchrun and ray are written down instead of run; its other
commands (cd, export, mkdir, rm, curl, ...) DO run. Then each main it would have called is checked: what was understood
as what, what has no effect, what differs. Data and models that are not on this machine are listed, and are no failure.
After --, a command is taken as it is: whet check --as verl -- python3 -m verl.trainer.main_ppo key=value.

--commands checks a JSON list of {system, script, module, args} in one process and prints a table by system. Exit code 0
means that every command passes that its own system accepts.

Examples:
  whet check config={examples}/quickstart.yaml worker.rollout.n=8
  whet check --as verl examples/grpo_trainer/run_qwen2-7b.sh trainer.total_epochs=1
  whet check --commands commands.json --json found.json
"""
_JOBS = ("train", "sft", "generate", "eval")


def _run(arguments: list[str]) -> int:
    if "--commands" in arguments:
        return _commands(arguments)
    if arguments[:1] == ["--as"]:
        return _script(arguments[1:])
    job, rest = (arguments[0], arguments[1:]) if arguments[:1] and arguments[0] in _JOBS else ("train", arguments)
    if wrong := [argument for argument in rest if argument.startswith("--")]:
        raise UserError(f"whet check has no option {wrong[0]} (whet check --help)")
    return _job(job, rest)


def _job(job: str, arguments: list[str]) -> int:
    from whet.config.jobs import load_job

    config = load_job(job, arguments, examples_folder())
    if job in ("generate", "eval"):
        print("config and paths are in order")
        return 0

    from whet.tracking.console import Console
    from whet.training.preflight import preflight

    problems = list(preflight(config, Console(quiet=True), samples=job == "train"))
    for problem in problems:
        print(f"problem: {problem}")
    count = f"{len(problems)} {'problem' if len(problems) == 1 else 'problems'}"
    print(count if problems else "everything that can be checked without weights is in order")
    return 2 if problems else 0


def _script(arguments: list[str]) -> int:
    from whet.compat.checking import check_command
    from whet.compat.commands import exit_code
    from whet.compat.recording import none_called, record, script_command
    from whet.compat.systems import system_of

    if len(arguments) < 2:
        raise UserError("whet check --as: name a system and a script, as in whet check --as verl run.sh")
    system = system_of(arguments[0])
    rest = arguments[1:]
    command = rest[1:] if rest[0] == "--" else script_command(rest)
    if not command:
        raise UserError("whet check --as: nothing follows --; name a command")
    if rest[0] != "--" and not Path(rest[0]).exists():
        raise UserError(f"{rest[0]}: there is no such script")
    recorded = record(system, command)
    for call in recorded.others:
        print(f"left out: {call['program']} {' '.join(call['args'])[:100]}")
    if not recorded.entries:
        raise none_called(system, recorded)
    checked = [
        check_command(system.name, call["module"], call["args"], Path(call["cwd"]), launcher=call["launcher"])
        for call in recorded.entries
    ]
    for each in checked:
        _print(each)
    return exit_code(checked) or (2 if any(each.translation and each.translation.original for each in checked) else 0)


def _print(checked: Checked) -> None:
    from whet.compat.report import report_lines

    print(f"{checked.module}: {checked.verdict}")
    if checked.translation is not None:
        for line in report_lines(checked.translation):
            print(f"  {line}")
    blocks = {"problems": checked.config, "not on this machine": checked.missing}
    for title, sentences in blocks.items():
        if sentences:
            print(f"  {title}:")
        for sentence in sentences:
            print(f"    {sentence}")


def _commands(arguments: list[str]) -> int:
    from whet.compat.commands import as_json, check_all, exit_code, read_commands, table_lines

    named = _values(arguments, ("--commands", "--json"))
    checked = check_all(read_commands(Path(named["--commands"]).expanduser()), Path.cwd())
    for line in table_lines(checked):
        print(line)
    if "--json" in named:
        out = Path(named["--json"]).expanduser()
        try:
            out.write_text(json.dumps(as_json(checked), indent=1, default=str) + "\n", encoding="utf-8")
        except OSError as error:
            raise UserError(f"--json {out}: cannot be written: {error.strerror}") from error
    return exit_code(checked)


def _values(arguments: list[str], options: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    waiting = iter(arguments)
    for argument in waiting:
        name, equals, value = argument.partition("=")
        if name not in options:
            raise UserError(f"whet check --commands FILE has no option {argument} (whet check --help)")
        found[name] = value if equals else next(waiting, "")
        if not found[name]:
            raise UserError(f"{name}: name a file")
    return found


COMMAND = Command(summary="check a run, a script or a list of commands, and run nothing", help=_HELP, run=_run)
