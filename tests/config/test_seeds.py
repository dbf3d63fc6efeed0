"""`trainer.seed` sets every seed that the same source does not give."""

from __future__ import annotations

from pathlib import Path

import pytest

from whet.config import load_config
from whet.errors import UserError


def seeds(*arguments: str) -> tuple[int | None, int, int]:
    config = load_config(list(arguments))
    return config.trainer.seed, config.data.seed, config.worker.rollout.seed


def test_one_seed_for_all_unless_another_is_given() -> None:
    assert seeds() == (None, 1, 1)
    assert seeds("trainer.seed=7") == (7, 7, 7)
    assert seeds("trainer.seed=7", "data.seed=3") == (7, 3, 7)
    assert seeds("trainer.seed=null", "worker.rollout.seed=2") == (None, 1, 2)


def test_the_command_line_wins_over_the_seeds_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text("data:\n  seed: 5\n")
    assert seeds(str(file), "trainer.seed=7") == (7, 7, 7)
    file.write_text("trainer:\n  seed: 4\ndata:\n  seed: 5\n")
    assert seeds(str(file)) == (4, 5, 4)
    assert seeds(str(file), "data.seed=6") == (4, 6, 4)


@pytest.mark.parametrize("value", ["-1", "one", "1.5"])
def test_a_wrong_seed_is_one_mistake(value: str) -> None:
    with pytest.raises(UserError) as refused:
        load_config([f"trainer.seed={value}"])
    assert str(refused.value).count(f"trainer.seed={value}") == 1
