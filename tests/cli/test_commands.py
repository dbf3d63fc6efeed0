"""Subcommands: names from file names, help from the modules, commands of installed packages."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from whet.cli import command as commands
from whet.cli import main
from whet.cli.command import COMMANDS, Command
from whet.config import check_files, load_config, with_values
from whet.errors import UserError

CLI = Path(commands.__file__).parent


def test_the_files_are_the_names() -> None:
    assert {"chat", "config", "eval", "generate", "merge", "model", "serve", "sft", "train"} <= {*COMMANDS.built_in}
    for name, module in COMMANDS.built_in.items():
        assert module.removesuffix("_") == f"whet.cli.{name}"  # `as` is a word of Python's
        assert (CLI / f"{module.rpartition('.')[2]}.py").is_file()
        assert isinstance(COMMANDS.find(name), Command)


@pytest.mark.parametrize("name", sorted(COMMANDS.built_in))
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_every_command_explains_itself(name: str, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "nonsense", flag]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"usage: whet {name}")
    examples = re.findall(rf"^  .*whet {name}\b.*$", out.partition("Examples:")[2], re.MULTILINE)
    assert 2 <= len(examples) <= 5
    assert max(map(len, COMMANDS.find(name).help.splitlines())) <= 120
    assert "{examples}" not in out
    assert main(["help", name]) == 0
    assert capsys.readouterr().out == out


def test_help_after_two_dashes_is_another_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "--", "--help"]) == 2
    assert "usage" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "name", sorted({*COMMANDS.built_in} - {"sweep", "as", "migrate"})
)  # keys with short names; keys of others
def test_examples_with_keys_are_sound(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every key of an example is known and every file of whet's own exists."""
    assert main([name, "--help"]) == 0
    for line in re.findall(rf"whet {name} (.*)$", capsys.readouterr().out.partition("Examples:")[2], re.MULTILINE):
        keys = [each for each in shlex.split(line.partition("|")[0]) if "=" in each and not each.startswith("-")]
        check_files(with_values(load_config(keys), {"generate.files": ""}))


def test_help_imports_neither_torch_nor_the_schema() -> None:
    program = """
import sys
from whet.cli import main
main(["--help"])
slow = {"torch", "transformers", "omegaconf", "rich", "whet.config.schema"} & {*sys.modules}
assert not slow, slow
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


PACKAGE = """
from whet.cli.command import Command
from whet.errors import UserError

def run(arguments):
    if not arguments:
        raise UserError("hello takes a name")
    print(f"hello {arguments[0]}")
    return 0 if arguments[0] == "world" else 7

COMMAND = Command(summary="greet somebody", help="usage: whet hello NAME", run=run)
WRONG = 3
"""
POINTS = """[whet.commands]
hello = hello_package:COMMAND
train = hello_package:COMMAND
broken = no_such_package:COMMAND
wrong = hello_package:WRONG
"""


def installed(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run whet where the package above is installed."""
    (folder / "hello_package.py").write_text(PACKAGE)
    information = folder / "hello_package-1.0.dist-info"
    information.mkdir(exist_ok=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: hello-package\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(POINTS)
    program = f"import sys; sys.path.append({str(folder)!r}); from whet.cli import main; sys.exit(main())"
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)


def test_a_package_adds_a_command(tmp_path: Path) -> None:
    done = installed(tmp_path, "hello", "world")
    assert (done.returncode, done.stdout) == (0, "hello world\n"), done.stderr
    assert installed(tmp_path, "hello", "moon").returncode == 7
    assert installed(tmp_path, "hello", "--help").stdout == "usage: whet hello NAME\n"
    done = installed(tmp_path, "hello")
    assert (done.returncode, done.stderr) == (2, "whet: hello takes a name\n")


def test_commands_of_packages_cannot_spoil_others(tmp_path: Path) -> None:
    done = installed(tmp_path, "--help")
    assert done.returncode == 0, done.stderr
    assert "whet hello      greet somebody" in done.stdout
    assert "whet train      train a model" in done.stdout
    assert re.search(r"whet broken +\(unusable: .*no_such_package", done.stdout)
    assert re.search(r"whet wrong +\(unusable: a int, no Command\)", done.stdout)
    done = installed(tmp_path, "broken")
    assert done.returncode == 2
    assert "no_such_package:COMMAND of hello-package cannot be imported: ModuleNotFoundError" in done.stderr
    assert installed(tmp_path, "wrong").returncode == 2
    assert "did you mean hello?" in installed(tmp_path, "helo").stderr


def test_a_command_cannot_be_registered_over_a_built_in() -> None:
    with pytest.raises(UserError, match="train cannot be registered"):
        COMMANDS.register("train", COMMANDS.find("sft"))
