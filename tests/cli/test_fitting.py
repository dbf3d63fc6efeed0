"""Help and sentences fit the terminal; commands that were broken can still be copied."""

from __future__ import annotations

import shlex

import pytest

from whet.cli import main
from whet.cli.command import COMMANDS
from whet.cli.fitting import fitted
from whet.config.examples import examples_folder

PAGE = """\
usage: whet do THIS

A paragraph of several words
in two lines.

  --one NAME   the first of the options
  --two        the second, which
               goes on below

Examples:
  whet do this --one name --two
"""


def test_a_page_that_fits_stays_as_it_is() -> None:
    assert fitted(PAGE, None) == PAGE
    assert fitted(PAGE, 80) == PAGE


def test_paragraphs_and_columns_are_wrapped() -> None:
    lines = fitted(PAGE.replace("several", "several and a few more"), 50).splitlines()
    assert "  --one NAME   the first of the options" in lines
    assert "  --two        the second, which goes on below" in fitted(f"{PAGE}\n{'x ' * 40}", 60).splitlines()
    assert "A paragraph of several words in two lines." in fitted(f"{PAGE}\n{'x ' * 40}", 60).splitlines()
    narrow = fitted(PAGE.replace("the second", "the second " + "very " * 9), 50).splitlines()
    at = next(i for i, line in enumerate(narrow) if "--two" in line)
    assert narrow[at + 1].startswith(" " * 15)
    assert narrow[at + 1][15] != " "
    below = fitted(PAGE, 36).splitlines()
    assert "  --one NAME" in below


def test_commands_are_broken_between_arguments() -> None:
    page = "usage: whet do [--one NAME ...] [--two]\n\nExamples:\n  whet do 'a b  c' --one name --two\n"
    usage, _, examples = fitted(page, 28).partition("\n\nExamples:\n")
    assert usage.splitlines() == ["usage: whet do", "           [--one NAME ...]", "           [--two]"]
    assert max(map(len, examples.splitlines())) <= 28
    assert shlex.split(examples.replace("\\\n", "")) == ["whet", "do", "a b  c", "--one", "name", "--two"]


@pytest.mark.parametrize("name", sorted(COMMANDS.built_in))
def test_every_page_of_help_fits_80_columns(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    whole = COMMANDS.find(name).help
    shown = text.replace(str(examples_folder()), "examples")  # whose length is the machine's
    assert not [line for line in shown.splitlines() if len(line) > 80 and len(line.removesuffix("\\").split()) > 1]
    text = text.replace(" \\\n", "\n")
    assert len(text.split()) == len(whole.split())  # no word is lost


def test_the_overview_fits_80_columns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert not [line for line in lines[:-1] if len(line) > 80]
    assert len([line for line in lines if line.startswith("  whet ")]) >= len(COMMANDS.built_in)
