"""Every command on every page is proven: run, or checked up to the work that would take a GPU, a cluster or hours.

tests/docs/proofs.py says how. tests/journeys runs the first commands of README.md as a newcomer does.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from docs.pages import PAGES, ROOT, Written, commands
from docs.proofs import ELSEWHERE, NOT_RUN, proof_of

COMMANDS = commands()


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.mark.parametrize("written", COMMANDS, ids=str)
def test_a_command_is_proven(
    written: Written,
    reader: Path,
    projects: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    proof = proof_of(written)
    assert proof is not None, "nothing proves this command: see tests/docs/proofs.py"
    monkeypatch.chdir(tmp_path if written.text.startswith("whet new") else folder_of(written, reader, projects))
    proof(written, monkeypatch)


def folder_of(written: Written, reader: Path, projects: dict[str, Path]) -> Path:
    """Return where a reader of the page types the command."""
    if written.page.startswith("whet/assets/projects/"):
        return projects[written.page.split("/")[-2]]
    if re.search(r"( run$|train config\.yaml$)", written.text):
        return projects["rl"]
    return reader


def test_a_new_command_needs_a_proof() -> None:
    for text in ("whet fly --high", "python -m elsewhere", "torchrun train.py", "python train"):
        assert proof_of(Written("docs/new.md", text)) is None


@pytest.mark.parametrize(
    "text", ["whet train no.such.key=1", "whet eval checkpoints/gone", "make nothing", "python bench/gpu.py --fast"]
)
def test_a_wrong_command_fails(text: str, reader: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(reader)
    written = Written("docs/new.md", text)
    proof = proof_of(written)
    assert proof is not None
    with pytest.raises((AssertionError, SystemExit)):
        proof(written, monkeypatch)


@pytest.mark.parametrize("pattern", [*NOT_RUN, *ELSEWHERE])
def test_no_exception_is_left_over(pattern: str) -> None:
    assert any(re.fullmatch(pattern, written.text) for written in COMMANDS), "no page has such a command any more"


def test_commands_are_found() -> None:
    found = {written.page for written in COMMANDS if not written.inline}
    assert {"README.md", "docs/scaling.md", "docs/sft.md", "docs/extending.md", "examples/code/README.md"} <= found
    texts = [written.text for written in COMMANDS]
    assert "whet train config=examples/algorithms/dapo.yaml" in texts
    assert sum(text.startswith("whet ") for text in texts) > 90


def test_extras_that_pages_install_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = [
        name
        for page in PAGES
        for names in re.findall(r"(?:whet|\.)\[([a-z0-9,]+)\]", page.read_text())
        for name in names.split(",")
    ]
    assert len(named) > 5
    assert set(named) <= set(extras)
