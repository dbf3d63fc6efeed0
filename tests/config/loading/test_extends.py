"""A config file that stands on another."""

from __future__ import annotations

from pathlib import Path

import pytest

from whet.config import load_config, resolve_path
from whet.errors import UserError


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_file_wins_over_what_it_extends_and_arguments_over_both(tmp_path: Path) -> None:
    _write(tmp_path / "base.yaml", "worker: {rollout: {n: 4, top_k: 5, seed: 3}}")
    middle = _write(tmp_path / "sub" / "middle.yaml", "extends: ../base.yaml\nworker: {rollout: {n: 8}}")
    top = _write(tmp_path / "top.yaml", f"extends: {middle}\nalgorithm: {{adv_estimator: rloo}}")
    rollout = load_config([f"config={top}", "worker.rollout.seed=9"]).worker.rollout
    assert (rollout.n, rollout.top_k, rollout.seed) == (8, 5, 9)


def test_relative_paths_are_found_beside_either_file(tmp_path: Path) -> None:
    _write(tmp_path / "base" / "base.yaml", "data: {format_prompt: prompt.jinja}")
    _write(tmp_path / "base" / "prompt.jinja", "{{ content }}")
    top = _write(tmp_path / "top" / "top.yaml", "extends: ../base/base.yaml")
    _write(tmp_path / "top" / "reward.py", "")
    config = load_config([f"config={top}"])
    assert resolve_path(config, "prompt.jinja").resolve() == tmp_path / "base" / "prompt.jinja"
    assert resolve_path(config, "reward.py").resolve() == tmp_path / "top" / "reward.py"


def test_of_several_bases_later_ones_win(tmp_path: Path) -> None:
    _write(tmp_path / "one.yaml", "worker: {rollout: {n: 4, top_k: 5}}")
    _write(tmp_path / "two.yaml", "worker: {rollout: {n: 8, seed: 3}}")
    top = _write(tmp_path / "top.yaml", "extends: [one.yaml, two.yaml]\nworker: {rollout: {seed: 4}}")
    rollout = load_config([f"config={top}"]).worker.rollout
    assert (rollout.n, rollout.top_k, rollout.seed) == (8, 5, 4)


def test_an_example_is_named_from_anywhere(tmp_path: Path) -> None:
    top = _write(tmp_path / "top.yaml", "extends: whet/algorithms/rloo.yaml")
    config = load_config([f"config={top}"])
    assert config.algorithm.adv_estimator == "rloo"
    assert resolve_path(config, "format_prompt/quickstart.jinja").is_file()  # beside a file further down
    _write(tmp_path / "whet" / "algorithms" / "rloo.yaml", "algorithm: {adv_estimator: opo}")
    assert load_config([f"config={top}"]).algorithm.adv_estimator == "opo"


def test_files_that_multiply_are_refused(tmp_path: Path) -> None:
    for i in range(12):
        _write(tmp_path / f"{i}.yaml", f"extends: [{i + 1}.yaml, {i + 1}.yaml, {i + 1}.yaml]")
    _write(tmp_path / "12.yaml", "data: {seed: 3}")
    with pytest.raises(UserError, match="more than 20 files extend each other"):
        load_config([f"config={tmp_path / '0.yaml'}"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("extends: nothing.yaml", "extends"),
        ("extends: top.yaml", "extends itself"),
        ("extends: 3", "names a YAML file"),
        ("extends: [base.yaml, {a: b}]", "or a list of them"),
        ("extends: [base.yaml, nothing.yaml]", "there is no such file"),
        ("extends: whet/nothing.yaml", "there is no such file"),
    ],
)
def test_a_wrong_base_is_named(tmp_path: Path, text: str, expected: str) -> None:
    top = _write(tmp_path / "top.yaml", text)
    with pytest.raises(UserError, match=expected) as error:
        load_config([f"config={top}"])
    assert str(top) in str(error.value)
