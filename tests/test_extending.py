"""Every file of docs/extending.md, outside the package: in one run, as an installed package, and as a command."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from whet_process import run_folder, train

from whet.tracking import read_metrics

GUIDE = (Path(__file__).parents[1] / "docs" / "extending.md").read_text()
FILES = {name: code for code, name in re.findall(r'```python\n("""(\w+\.py): .*?)```', GUIDE, re.DOTALL)}
(COMMAND,) = re.findall(r"```bash\n(.*?)```", GUIDE, re.DOTALL)
(PROJECT,) = re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL)
POINTS = tomllib.loads(PROJECT)["project"]["entry-points"]

Python = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of the page."""
    folder = tmp_path_factory.mktemp("mine")
    for name, code in FILES.items():
        (folder / name).write_text(code)
    return folder


@pytest.fixture(scope="module")
def extended_run(mine: Path, few_rows: tuple[str, str]) -> Path:
    """The run of the page, on a few rows."""
    keys = shlex.split(COMMAND.replace("\\\n", ""))[2:]
    small = (
        "data.max_response_length=8",
        "worker.rollout.n=2",
        "trainer.val_before_train=false",
        "trainer.val_freq=-1",
    )
    code, text = train(mine, *few_rows, *small, *keys)
    assert code == 0, text
    return run_folder(mine, "extended")


@pytest.fixture
def installed(mine: Path) -> Python:
    """Run Python where the package of the page is installed, its metadata written as pip writes it."""
    information = mine / "my_whet-1.0.dist-info"
    information.mkdir(exist_ok=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: my-whet\nVersion: 1.0\n")
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in POINTS.items()
    ]
    (information / "entry_points.txt").write_text("\n".join(lines))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(mine), *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [sys.executable, *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path})

    return run


def test_the_page_has_a_file_of_each_kind() -> None:
    assert {"median.py", "fading.py", "table.py", "slow.py", "sorted_digits.py", "digit_share.py", "steps.py"} == {
        *FILES
    }
    for points in POINTS.values():
        for name, value in points.items():
            assert f"{value.partition(':')[0]}.py" in FILES, name


def test_one_run_uses_all_of_them(extended_run: Path) -> None:
    lines = [line for line in read_metrics(extended_run / "metrics.jsonl") if "train/step" in line]
    assert [line["train/step"] for line in lines] == [1, 2]
    # 1. the loss reported its metric, 2. the logger wrote it, 3. the reward gave both scores
    table = [row.split("\t") for row in (extended_run / "table.tsv").read_text().splitlines()]
    assert [int(step) for step, _, _ in table] == [1, 2]
    for (_, reward, influence), line in zip(table, lines):
        assert float(reward) == line["reward/overall"]
        assert float(influence) == line["actor/influence"]
        assert 0 < line["actor/influence"] <= 1
        assert "reward/accuracy" in line
        assert line["rollout/log_prob_diff_max"] < 1e-4  # 4. the engine sampled from the learner's weights
    config = (extended_run / "config.yaml").read_text()
    for name in ("median.py", "fading.py", "table.py:TableLogger", "slow.py:SPEC", "sorted_digits.py:score"):
        assert str(extended_run.parents[2] / name) in config  # found from any folder


def test_names_of_an_installed_package_are_choices(installed: Python) -> None:
    program = """
from whet.algos import find_advantage, find_policy_loss, needs_of
from whet.config import load_config
from whet.config.checks.engines import engine_checks
from whet.config.schema.trainer import LOGGERS

config = load_config([
    "algorithm.adv_estimator=median", "worker.actor.loss_type=fading",
    "trainer.logger=[table]", "worker.rollout.name=slow",
])
find_advantage("median"), find_policy_loss("fading")
assert needs_of("median") == () and config.algorithm.compares_groups
assert LOGGERS.find("table").__name__ == "TableLogger"
assert engine_checks(config).can(config).shares_weights
"""
    done = installed("-c", program)
    assert done.returncode == 0, done.stderr
    listed = " ".join(installed("-m", "whet", "config").stdout.split())
    assert re.search(r"adv_estimator [^(]*\([^)]*\bmedian\b", listed)
    assert re.search(r"trainer\.logger [^(]*\([^)]*\btable\b", listed)


def test_the_subcommand_is_one_of_whet(installed: Python, extended_run: Path) -> None:
    done = installed("-m", "whet", "steps", str(extended_run))
    last = read_metrics(extended_run / "metrics.jsonl")[-1]
    assert (done.returncode, done.stdout) == (0, f"step 2: reward {last['reward/overall']:.3f}\n"), done.stderr
    assert "whet steps" in installed("-m", "whet", "--help").stdout
    done = installed("-m", "whet", "steps")
    assert done.returncode == 2
    assert done.stderr == "whet: whet steps takes the folder of a run: whet steps checkpoints/whet/quickstart\n"


def test_the_scorer_is_a_reward_by_name(installed: Python) -> None:
    pytest.importorskip("whet.rewards.registry")
    program = """
from whet.rewards.dispatch import scorer_named
reward = scorer_named("digit_share")
assert reward({"response": "Answer: 1 2 4 3", "ground_truth": "1 2 3 4"})["overall"] == 0.5
assert reward({"response": "Answer: 1 2", "ground_truth": "1 2"}, whole=3.0) == {"overall": 3.0, "accuracy": 1.0}
"""
    done = installed("-c", program)
    assert done.returncode == 0, done.stderr
