"""How each command of the documentation is proven. A command that none of these knows fails the test."""

from __future__ import annotations

import argparse
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from docs.conftest import PLACEHOLDERS
from docs.pages import ROOT, Written
from fork_server import run_forked

from whet.cli import main
from whet.cli.command import COMMANDS
from whet.config import load_config

# Programs of others, which are not installed with whet, and fragments; with the reason why they are only read.
NOT_RUN = {
    r"python -m sglang\.launch_server .*": "SGLang is not installed; its API is tested with a stand-in",
    r"python -m vllm\.entrypoints\.openai\.api_server .*": "vLLM wants an environment of its own: make test-vllm",
    r"python3 -m verl\.trainer\.main_ppo .*": "verl is not installed; the command of whet beside it is proven",
    r"python3 -m venv .*": "makes an environment, in which packages would be installed from the network",
    r"python -I -S -c": "options of Python in running text, without a program",
    r"python -m whet\.assets\.warm_start .*": "trains shipped weights anew; tests/assets/test_shipped.py reads them",
    r"python examples/reward_model/make_model\.py .*": "trains; test_reward_model_example.py does, for 2 steps",
    r"whet eval checkpoints/whet/or1_digits .*": "the run of tests/test_or1_example.py",
    r"whet train config=examples/or1/(digits|or1_7b)\.yaml": "its data is made first; see tests/test_or1_example.py",
    r"python examples/or1/make_data\.py .*": "writes data; tests/test_or1_example.py runs it",
    r"python -m whet\.sandbox": "named as what ends up in a list of processes, not to be typed",
}
# Commands that need files which their own tests make; such a test reads the page itself.
ELSEWHERE = {
    r"whet merge (merge --backend fsdp )?--local_dir .*": "tests/merge/test_merge_guide.py::test_commands_for_shards",
    r"whet train '?algorithm\.extensions=.*": "tests/test_extending.py::test_one_run_uses_all_of_them",
    r"whet train worker\.rollout\.name=slow\.py:SPEC": "tests/training/test_outside_engine.py",
    r"whet reward bench .*": "tests/evals/rewards/test_bench.py::test_the_guide",
    r"python tools/parity\.py .*": "tests/tools/test_parity.py",
    r"whet (sft|train) config=examples/games/(number|tree)_game/(warm_start|config)\.yaml.*": (
        "tests/games/test_training.py"
    ),
    r"whet train config=examples/games/android_gui/.*": "tests/games/test_android_gui.py",
    r"whet (as|check|migrate) .+": "tests/compat/test_guide.py::test_commands_are_understood",
}
# What does the work of a job. Everything before it, from arguments to checks of files, is run as it is.
JOBS = {
    "train": "whet.training.job.train",
    "sft": "whet.supervised.job.sft",
    "generate": "whet.evals.generate.generate",
    "eval": "whet.evals.evaluate.evaluate",
    "serve": "whet.serving.server.serve",
    "chat": "whet.evals.terminal_chat.chat",
    "merge": "whet.merge.command.merge",
    "board": "whet.board.server.serve",
    "resample": "whet.resample.command.show",
}
# Commands that take a moment.
WHOLE = ("config", "plot", "compare", "new", "model", "sweep", "sandbox", "doctor", "report")
HUB_NAME = re.compile(r"(?<![\w/.])[A-Z][\w.-]+/[A-Z][\w.-]+")

Proof = Callable[[Written, pytest.MonkeyPatch], None]


def proof_of(written: Written) -> Proof | None:
    """Return what proves a command; None if nothing does."""
    program, words = written.words[0], written.words
    if written.page.startswith("examples/recipes/") and program in ("whet", "python"):
        return recipe_has
    if any(re.fullmatch(pattern, written.text) for pattern in NOT_RUN):
        return lambda written, patch: None
    for pattern, test in ELSEWHERE.items():
        if re.fullmatch(pattern, written.text):
            return lambda written, patch: test_exists(test)
    if program == "make":
        return target_exists
    if program.startswith("python") and words[1].endswith(".py"):
        return script_understands
    if program.startswith("python") and words[1:2] == ["-m"] and words[2].startswith("whet."):
        return module_runs
    if program.startswith("python") and words[1:2] == ["-m"] and words[2].startswith("examples."):
        return example_understands
    if program == "python" and words[1] == "-c" and len(words) == 3:
        return program_runs
    if program == "whet" and (words[1] in COMMANDS.names or words[1] in PLACEHOLDERS or words[1].startswith("-")):
        return whet_understands
    return None


def test_exists(test: str) -> None:
    """A test that is said to prove a command is there, and reads the documentation."""
    file, _, name = test.partition("::")
    text = (ROOT / file).read_text()
    assert not name or f"def {name}(" in text, test
    assert re.search(r"docs|GUIDE|README|parity", text), f"{test} reads no page"


test_exists.__test__ = False  # type: ignore[attr-defined]


def target_exists(written: Written, patch: pytest.MonkeyPatch) -> None:
    """`make` knows the target and its variables; what it would do is not done."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", "--dry-run", *written.words[1:]], cwd=ROOT, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    targets = [word for word in written.words[1:] if "=" not in word]
    assert targets, "no target is named"
    assert all(re.search(rf"^{target}:.*##", (ROOT / "Makefile").read_text(), re.MULTILINE) for target in targets)


def recipe_has(written: Written, patch: pytest.MonkeyPatch) -> None:
    """A recipe has the files that its README names; test_recipes.py checks its configs, and its tiny run is run.

    Other arguments are keys that are known, and data sets that whet prepares.
    """
    folder, words = (ROOT / written.page).parent, written.words
    named = [word.removeprefix("config=") for word in words[1:] if word.startswith("config=") or word.endswith(".py")]
    assert all((folder / name).is_file() for name in named), named
    if words[0] != "whet" or len(words) == 2:
        return
    assert words[1] in COMMANDS.names
    if words[1] == "recipe" and words[2] != "NAME":
        assert words[2] == folder.name
    if words[1] == "data":
        from whet.prepare.registry import SETS

        assert words[2] in (*SETS.names, "filter")
    keys = [word for word in words[2:] if "=" in word and not word.startswith(("config=", "-"))]
    load_config(keys)


class Understood(BaseException):
    """A script has read its arguments; its work is not begun."""


def script_understands(written: Written, patch: pytest.MonkeyPatch) -> None:
    """A script is there and its parser takes the arguments."""
    script, arguments = ROOT / written.words[1], written.words[2:]
    assert script.is_file() or Path(written.words[1]).is_file(), script
    parse = argparse.ArgumentParser.parse_args

    def stop(parser: argparse.ArgumentParser, *rest: Any) -> None:
        parse(parser, *rest)
        raise Understood

    patch.setattr(argparse.ArgumentParser, "parse_args", stop)
    patch.setattr(sys, "argv", [str(script), *arguments])
    patch.setattr(sys, "path", [str(script.parent), *sys.path])
    with pytest.raises(Understood):
        runpy.run_path(str(script), run_name="__main__")


def example_understands(written: Written, patch: pytest.MonkeyPatch) -> None:
    """A module of the examples is a script of the checkout."""
    script = written.words[2].replace(".", "/") + ".py"
    script_understands(Written(written.page, shlex.join(["python", script, *written.words[3:]])), patch)


def program_runs(written: Written, patch: pytest.MonkeyPatch) -> None:
    """A program on the command line runs."""
    done = run_forked(exec, written.words[2], folder=Path.cwd(), seconds=120)
    assert done.code == 0, done.err


def module_runs(written: Written, patch: pytest.MonkeyPatch) -> None:
    """A module of whet runs; what it prints is not kept."""
    arguments = written.text.partition(" > ")[0].split()[1:]
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def whet_understands(written: Written, patch: pytest.MonkeyPatch) -> None:
    """`whet` takes the command: whole where it takes a moment, else up to the work, which is left out."""
    arguments = resolved(written.words[1:])
    name, rest = arguments[0], arguments[1:]
    if rest in ([], ["simulate"]) and written.inline and name not in ("config", "train", "sft"):
        assert name.startswith("-") or COMMANDS.find(name).help  # running text speaks of the command, and types none
        return
    if (name == "plot" and (rest.count(PLACEHOLDERS["RUN"])) > 1) or (name == "compare" and len(set(rest)) == 1):
        rest = [rest[0], "checkpoints/whet/other"]
    if name == "sweep":
        rest = [*rest, "--dry-run"]
    if (name, rest[:1]) == ("sandbox", ["serve"]) or (name == "merge" and rest == ["--trust-pickles"]):
        assert rest[0] in COMMANDS.find(name).help
        return
    if name == "plan":
        plan_understands(rest)
        return
    if name == "data" and rest != ["--list"]:
        data_understands(rest)
        return
    begun: list[str] = []
    for job, place in JOBS.items():
        module, _, function = place.rpartition(".")
        patch.setattr(import_module(module), function, lambda *given, job=job, **named: begun.append(job))
    assert main([name, *rest]) == 0
    is_whole = name.startswith("-") or name in WHOLE or any(each in ("--help", "--list", "--show") for each in rest)
    assert is_whole or begun == [name], "the job was not begun"


def plan_understands(arguments: list[str]) -> None:
    """`whet plan` takes the options and the keys; plans themselves are tested in tests/planning."""
    from whet.cli import plan
    from whet.config import load_config
    from whet.planning import simulate_command
    from whet.planning.options import parse

    simulates = arguments[:1] == ["simulate"]
    values, switches = (simulate_command._VALUES, ("--json",)) if simulates else (plan._VALUES, plan._SWITCHES)
    parse("whet plan", arguments[simulates:], values, switches)
    load_config([each for each in arguments if "=" in each and not each.startswith("-")])


def data_understands(arguments: list[str]) -> None:
    """`whet data` knows the data set and takes the options; files of other people's are not read."""
    from whet.prepare import filtering, options
    from whet.prepare.registry import SETS

    if arguments == ["filter"]:
        return
    if arguments[0] == "filter":
        filtering.parse(arguments[1:])
    elif arguments[0] != PLACEHOLDERS["NAME"]:
        assert arguments[0] in SETS.names
        options.parse(arguments[0], arguments[1:])


def resolved(words: list[str]) -> list[str]:
    """Replace what stands for something of the reader's."""
    found = []
    for word in words:
        key, equals, value = word.rpartition("=")
        value = "whet/quickstart@test" if key == "generate.files" and value == "..." else value
        value = PLACEHOLDERS.get(value, value).replace(".parquet", ".jsonl") if key != "generate.output" else value
        found.append(key + equals + HUB_NAME.sub("whet/quickstart", value))
    return found
