"""Python on the pages that have no test of their own runs as it stands, up to the sizes of a run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from docs.pages import ROOT

from whet.config import load_config

ROWS = [{"prompt": "Sort these digits: 3 1 2", "answer": "Answer: 1 2 3"}] * 8


def snippets(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)


def test_samples_are_read(reader: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(reader)
    (code,) = snippets("do/reward-does-not-rise.md")
    exec(code, {})
    assert capsys.readouterr().out.count("→") == 5


def test_the_program_that_replaces_one_of_trl(
    quickstart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = [each for each in snippets("coming-from/trl.md") if "whet.train" in each]
    small = {"org/model": "whet/quickstart", "batch_size=32": "batch_size=4", "length=512": "length=8", "s=100": "s=1"}
    small["kl=0,"] = "kl=0, max_prompt_length=64,"
    for theirs, ours in small.items():
        assert code.count(theirs) == 1
        code = code.replace(theirs, ours)
    variables: dict[str, Any] = {"dataset": ROWS, "__name__": "__main__"}
    exec(compile(code, "/tmp/ipykernel_1/7.py", "exec"), variables)
    assert variables["run"].metrics["step"][-1] == 1
    assert variables["run"].metrics["reward/failed"][-1] == 0


@pytest.mark.parametrize(
    "page", ["start/gpu.md", "start/faq.md", "do/out-of-memory.md", "do/reward-does-not-rise.md", "do/several-nodes.md"]
)
def test_keys_that_pages_set_can_be_set(page: str) -> None:
    found = re.findall(r"`((?:data|worker|algorithm|trainer)\.[\w.]+=[^`\s]+)`", (ROOT / "docs" / page).read_text())
    load_config([each for each in found if "=/" not in each and "server_address" not in each])


def test_keys_and_defaults_of_the_pages_for_newcomers_are_whets() -> None:
    from whet.config.schema import all_keys

    for page in ("trl", "verl", "easyr1", "vppo", "or1", "openrlhf"):
        text = (ROOT / "docs" / "coming-from" / f"{page}.md").read_text()
        named = re.findall(
            r"`((?:data|worker|algorithm|trainer)\.[\w.]+)(?:=[^`]*)?`(?: \((\**[\w.-]+)\**[,:)])?", text
        )
        assert len(named) > 1
        for key, default in named:
            if key.endswith(".") or key in ("worker.reward.combine", "algorithm.rollout_correction"):
                continue
            is_section = any(name.startswith(f"{key}.") for name in all_keys()) or "val_override_config" in key
            assert key in all_keys() or is_section, f"{page}: {key}"
            if default not in ("", "off", "default") and key in all_keys():
                assert _value(default.strip("*")) == all_keys()[key].default, f"{page}: {key}"


def _value(text: str) -> Any:
    """Return the value that a page writes."""
    known = {"null": None, "true": True, "false": False}
    if text in known:
        return known[text]
    return float(text) if re.fullmatch(r"-?[\d.]+(e-?\d+)?", text) else text
