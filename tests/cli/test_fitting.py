"""Help and sentences fit the terminal; commands to be copied stay whole."""

from __future__ import annotations

import pytest

from whet.cli import main
from whet.cli.command import COMMANDS
from whet.cli.fitting import fitted

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


def test_paragraphs_and_columns_are_wrapped_and_commands_are_not() -> None:
    lines = fitted(PAGE.replace("several", "several and a few more"), 50).splitlines()
    assert "  --one NAME   the first of the options" in lines
    assert "  --two        the second, which goes on below" in fitted(f"{PAGE}\n{'x ' * 40}", 60).splitlines()
    assert "A paragraph of several words in two lines." in fitted(f"{PAGE}\n{'x ' * 40}", 60).splitlines()
    narrow = fitted(PAGE.replace("the second", "the second " + "very " * 9), 50).splitlines()
    at = next(i for i, line in enumerate(narrow) if "--two" in line)
    assert narrow[at + 1].startswith(" " * 15)
    assert narrow[at + 1][15] != " "
    assert "  whet do this --one name --two" in fitted(PAGE, 20).splitlines()
    below = fitted(PAGE, 36).splitlines()
    assert "  --one NAME" in below


@pytest.mark.parametrize("name", sorted(COMMANDS.built_in))
def test_every_page_of_help_fits_80_columns(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    whole = COMMANDS.find(name).help
    prose = [line for line in text.partition("Examples:")[0].splitlines() if not line.startswith(("usage", "      "))]
    assert not [line for line in prose if len(line) > 80]
    assert len(text.split()) == len(whole.split())  # no word is lost


def test_the_overview_fits_80_columns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert not [line for line in lines[:-1] if len(line) > 80]
    assert len([line for line in lines if line.startswith("  whet ")]) >= len(COMMANDS.built_in)
