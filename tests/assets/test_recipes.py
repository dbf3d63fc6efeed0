"""Every recipe's configs are sound, its folder is complete, and `whet recipe` lists and copies it."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from whet.assets.recipes import Recipe, copy_recipe, find_recipe, read_recipe, recipes, recipes_folder
from whet.cli import main
from whet.config import load_config
from whet.config.examples import examples_folder
from whet.config.jobs import load_job
from whet.config.keys import get
from whet.errors import UserError

RECIPES = recipes()
# Data that a recipe's preparation writes or the hub has; the configs are checked with rows that are there.
ROWS = "whet/quickstart"


def _configs(recipe: Recipe) -> list[Path]:
    return sorted(path for path in recipe.folder.glob("*.yaml") if "\ntrainer:" in path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_configs_are_sound(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {path.name for path in recipe.folder.iterdir()}
    assert {"README.md", "config.yaml", "recipe.yaml"} <= names
    assert {
        word.removeprefix("config=") for line in recipe.tiny for word in shlex.split(line) if "config=" in word
    } <= names
    copy_recipe(recipe, tmp_path / "copy")  # where files beside the package's examples are not found any more
    monkeypatch.chdir(tmp_path)
    for file in _configs(replace(recipe, folder=tmp_path / "copy")):
        text = file.read_text(encoding="utf-8")
        job = "sft" if "\nsft:" in text or "sft" in file.stem else "train"
        there = [f"data.train_files={ROWS}@train", f"data.val_files={ROWS}@test"]
        loaded = load_config([f"config={file}"])
        for key in ("worker.actor.model.model_path", "algorithm.distill.model_path"):
            if str(get(loaded, key)).startswith("checkpoints/"):  # what an earlier command of the recipe trained
                there.append(f"{key}={ROWS}")
        load_job(job, [f"config={file}", *there], examples_folder())


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_readme_says_what_is_needed(recipe: Recipe) -> None:
    text = (recipe.folder / "README.md").read_text(encoding="utf-8")
    for heading in ("## What is different", "## Run it", "## What to expect"):
        assert heading in text, heading
    assert "tiny.yaml" in text
    assert f"whet recipe {recipe.name}" in text
    assert 0 < recipe.seconds <= (240 if recipe.name == "deepeyes" else 90)


def test_list_names_every_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipe"]) == 0
    out = capsys.readouterr().out
    words = " ".join(out.split())  # lines are as wide as the terminal
    for recipe in RECIPES:
        assert f"  {recipe.name} " in out
        assert recipe.hardware in words


def test_a_copy_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["recipe", "dapo", "mine", "--copy"]) == 0
    assert main(["recipe", "dapo", "mine", "trainer.max_steps=9"]) == 2
    assert "run it with: cd mine && whet train config=tiny.yaml trainer.max_steps=9" in capsys.readouterr().err
    config = load_job("train", ["config=mine/tiny.yaml"], examples_folder())
    assert config.algorithm.filter_groups.enable
    assert config.worker.actor.clip_ratio_high == 0.28
    assert config.data.train_files == "whet/quickstart@train"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["dapoo"], "did you mean"),
        (["../dapo"], "there is no recipe"),
        (["dapo", "one", "two"], "at most one folder"),
        (["dapo", "--force"], "has no option --force"),
        (["--copy"], "takes the name of a recipe"),
        (["dapo", "full"], "is not an empty folder"),
        (["dapo", "full/file"], "is not an empty folder"),
        (["dapo", "full/file/below"], "name a folder that can: whet recipe dapo FOLDER"),
        (["dapo", ""], "at most one folder"),
        (["dapo", "trainer.max_steps"], "is a key without a value"),
    ],
)
def test_mistakes_are_named(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    assert main(["recipe", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from whet.cli.recipe import _require

    (tmp_path / "recipe.yaml").write_text(
        "{summary: s, paper: p, hardware: h, time: t, tiny: [whet train], seconds: 1, needs: [no_such_package_x]}"
    )
    with pytest.raises(UserError, match="needs no_such_package_x"):
        _require(read_recipe(tmp_path))


@pytest.mark.parametrize(
    "text",
    ["summary: s", "[1, 2]", "{tiny: [rm -rf x], summary: s, paper: p, hardware: h, time: t, seconds: 1}", "a: b"],
)
def test_a_wrong_description_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(text)
    with pytest.raises(UserError, match=r"recipe\.yaml"):
        read_recipe(tmp_path)


@pytest.mark.parametrize(
    ("name", "takers"),
    [
        ("fapo", ["config=tiny_outcome.yaml", "config=tiny.yaml"]),  # not the supervised stage
        ("open_math_reasoning", ["config=tiny.yaml"]),
        ("genrm_remote", ["tiny.py"]),
    ],
)
def test_arguments_go_to_the_training(name: str, takers: list[str]) -> None:
    commands = find_recipe(name).commands(["trainer.max_steps=2"])
    assert [words[-2] for words in commands if words[-1] == "trainer.max_steps=2"] == takers


def test_find_by_name() -> None:
    assert find_recipe("dapo").folder == recipes_folder() / "dapo"
