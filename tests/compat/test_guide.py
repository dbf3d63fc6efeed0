"""Commands of `whet as`, `whet check` and `whet migrate` on the pages of the documentation (docs, README)."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs.pages import ROOT, Written, commands

from whet.cli import main

# Scripts that the pages name, with what stands in for those of the systems.
PPO = "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.rollout.name=vllm"
SCRIPTS = {
    "verl": f"{PPO} actor_rollout_ref.rollout.n=5 $@\n",
    "or1": "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.rollout.n=5 $@\n",
    "easyr1": "python3 -m verl.trainer.main worker.rollout.n=5 $@\n",
    "vppo": "python3 -m verl.trainer.main worker.rollout.n=5 $@\n",
}
COMMANDS_FILE = '[{"system": "easyr1", "script": "x", "module": "verl.trainer.main", "args": ["worker.rollout.n=5"]}]'
YAML = "data: {max_prompt_length: 64}\nworker: {rollout: {n: 5}}\n"


def _system(words: list[str]) -> str:
    return next((word for word in words if word in SCRIPTS), "")


def _written() -> list[Written]:
    """Return the commands that name what they are about; running text abbreviates others."""
    found = [each for each in commands() if each.words[:1] == ["whet"] and each.words[1] in ("as", "check", "migrate")]
    return [each for each in found if len(each.words) > (4 if _system(each.words) or "--as" in each.words else 2)]


def test_pages_have_such_commands() -> None:
    assert {each.words[1] for each in _written()} == {"as", "check", "migrate"}


@pytest.mark.parametrize("written", _written(), ids=str)
def test_commands_are_understood(
    written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quickstart: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    words = written.words[1:]
    system = _system(words)
    for word in words:
        if word.endswith(".sh"):
            (tmp_path / word).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / word).write_text(SCRIPTS[system])
    (tmp_path / "examples").mkdir(exist_ok=True)
    for name in ("run.yaml", "examples/config.yaml"):
        (tmp_path / name).write_text(YAML)
    (tmp_path / "my.yaml").write_text(f"extends: {ROOT / 'examples' / 'quickstart.yaml'}\n")
    (tmp_path / "commands.json").write_text(COMMANDS_FILE)
    if words[0] == "as":  # what it would run is checked
        words = ["check", "--as", system, *words[words.index("--") :]]
    assert main(words) == 0
    if words[0] == "migrate":
        assert list(tmp_path.glob("*.yaml"))
