"""`whet migrate`: another system's script, command or config as a commented whet.yaml."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from whet.cli.command import Command
from whet.errors import UserError

if TYPE_CHECKING:
    from whet.compat.migrate import Call, Migrated
    from whet.compat.systems import System

_HELP = """\
usage: whet migrate verl|easyr1|vppo|or1 [--out FILE] [--fixed] SCRIPT [ARGS ...]
       whet migrate SYSTEM [--out FILE] [--fixed] FILE.yaml [key=value ...]
       whet migrate SYSTEM [--out FILE] [--fixed] [MODULE] key=value ...
       whet migrate SYSTEM [--out FILE] [--fixed] -- COMMAND ...

Write another system's script, config or argument list as a config of whet, whet.yaml, with the original key behind each
line and comments for what has no effect, what differs and what is not here. Then print how its settings differ from
whet's defaults. The file trains the same bits as `whet as` with the original. Exit code 2 means that something was
refused; the file says what, and leaves it out.

A script is run with calls of python, torchrun and ray written down instead of run; its other commands (cd, export,
mkdir, rm, curl, ...) DO run. A second call of a script goes to whet-2.yaml, and so on. FILE.yaml is a config of EasyR1
or VPPO-RL, or of verl or Skywork-OR1 for --config-path and --config-name. MODULE is the main; the trainer if left out.

  --out FILE   name of the file that is written (whet.yaml); an existing one is not replaced
  --fixed      whet's numbers, algorithm.match=whet, as in whet as --fixed

Examples:
  whet migrate verl examples/grpo_trainer/run_qwen2-7b.sh
  whet migrate easyr1 --out math.yaml examples/config.yaml trainer.max_steps=10
  whet migrate verl verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_files=train.parquet

Key tables: docs/coming-from
"""
_DEFAULT = "whet.yaml"


@dataclass
class _Options:
    out: Path = Path(_DEFAULT)
    fixed: bool = False


def _run(arguments: list[str]) -> int:
    from whet.compat.systems import system_of

    if not arguments or arguments[0].startswith("-"):
        raise UserError("whet migrate: name the system first, as in whet migrate verl run.sh (whet migrate --help)")
    system = system_of(arguments[0])
    options, rest = _options(arguments[1:])
    if not rest:
        raise UserError(f"whet migrate {system.name}: name a script, a YAML file or arguments (whet migrate --help)")
    calls = _calls(system, rest)
    outs = [_numbered(options.out, at) for at in range(len(calls))]
    for out in outs:
        if out.exists():
            raise UserError(f"{out}: exists, and is not replaced; remove it, or name another file with --out")
    codes = [_write(system, call, out, options.fixed) for call, out in zip(calls, outs)]
    return max(codes)


def _options(arguments: list[str]) -> tuple[_Options, list[str]]:
    """Take the options out of the arguments before `--`."""
    made = _Options()
    rest: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        name, equals, value = argument.partition("=")
        if argument == "--":
            return made, [*rest, "--", *waiting]
        if argument == "--fixed":
            made.fixed = True
        elif name == "--out":
            text = value if equals else next(waiting, "")
            if not text:
                raise UserError("--out: name the file to write")
            made.out = Path(text).expanduser()
        else:
            rest.append(argument)
    return made, rest


def _numbered(out: Path, at: int) -> Path:
    return out.with_name(f"{out.stem}-{at + 1}{out.suffix}") if at else out


def _calls(system: System, arguments: list[str]) -> list[Call]:
    from whet.compat.migrate import Call

    first = arguments[0]
    if first.endswith((".yaml", ".yml")) and "=" not in first:
        return [Call(_trainer(system), [*_file_arguments(system, Path(first)), *arguments[1:]], Path.cwd())]
    if system.entry(first) is not None and not Path(first).is_file():
        return [Call(first, arguments[1:], Path.cwd())]
    if first != "--" and ("=" in first or first.startswith("-")):
        return [Call(_trainer(system), arguments, Path.cwd())]
    return list(_recorded(system, arguments))


def _trainer(system: System) -> str:
    return system.entries[0].modules[0]


def _file_arguments(system: System, file: Path) -> list[str]:
    """Return the arguments by which the system's trainer reads a YAML file."""
    if not file.expanduser().is_file():
        raise UserError(f"{file}: there is no such file")
    if system.name in ("easyr1", "vppo"):
        return [f"config={file}"]
    whole = file.expanduser().absolute()
    return [f"--config-path={whole.parent}", f"--config-name={whole.stem}"]


def _recorded(system: System, arguments: list[str]) -> Iterator[Call]:
    """Yield the calls that a script makes."""
    from whet.compat.migrate import Call
    from whet.compat.recording import none_called, record, script_command

    if arguments[0] != "--" and not Path(arguments[0]).is_file():
        raise UserError(f"{arguments[0]}: there is no such script, and {system.title} has no main of this name")
    command = arguments[1:] if arguments[0] == "--" else script_command(arguments)
    if not command:
        raise UserError("whet migrate: nothing follows --; name a command")
    recorded = record(system, command)
    if not recorded.entries:
        raise none_called(system, recorded)
    for call in recorded.others:
        print(f"left out: {call['program']} {' '.join(call['args'])[:100]}")
    for call in recorded.entries:
        yield Call(call["module"], call["args"], Path(call["cwd"]), tuple(call["launcher"]))


def _write(system: System, call: Call, out: Path, fixed: bool) -> int:
    from whet.compat.migrate import file_text, migrate

    migrated = migrate(system, call, fixed)
    if migrated.translation is None:
        print(f"{call.module}: needs no file; run: {migrated.run_line('')}")
        return 0
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(file_text(system, migrated, str(out)), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{out}: cannot be written: {error.strerror}") from error
    return _show(migrated, out)


def _show(migrated: Migrated, out: Path) -> int:
    from whet.compat.migrate import diff_lines
    from whet.compat.report import remark_lines

    made = migrated.translation
    assert made is not None
    differences, problems, missing = diff_lines(migrated, out)
    print(f"{migrated.call.module}: written to {out}; run: {migrated.run_line(str(out))}")
    blocks = {"settings that differ from whet's defaults": differences, "problems": problems}
    for title, lines in {**blocks, "not on this machine": missing}.items():
        if lines:
            print(f"  {title}:")
        for line in lines:
            print(f"    {line}")
    for line in remark_lines(made):
        print(f"  {line}")
    return 2 if problems or made.refused or made.original else 0


COMMAND = Command(summary="write another system's script or config as a commented whet.yaml", help=_HELP, run=_run)
