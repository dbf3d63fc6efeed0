"""Commands that nobody wrote: captured ones with other values, keys and forms give a report, never a traceback."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import shrink
import yaml

from whet.compat.checking import Verdict, check_command
from whet.compat.migrate import Call, file_text, migrate
from whet.compat.report import report_lines
from whet.compat.systems import SYSTEMS
from whet.compat.tables import PAGES
from whet.compat.trees import tree
from whet.errors import UserError

VALUES = (
    "", "null", "[]", "{}", "-1", "0", "3.7", "1e999", "nan", "True", "'x'", '"x y"', "${oc.env:NO_SUCH,1}", "${nope}",
    "${trainer}", "[1,2", "{a:1}", "{a:{b:[1,2]}}", "9" * 25, "two words", "\\", "a=b", "['a','b']", "[[1],[2]]", "npu",
    "???", "{", "'", "é", "10,20", "choice(1,2)", "\n", "  ", "\\${x}",
)  # fmt: skip
FORMS = (
    "{key}={value}", "{key}={value}", "{key}={value}", "+{key}={value}", "++{key}={value}", "~{key}", "~{key}={value}",
    "{key}", "{key}.below={value}", "{above}={{{leaf}: {value}}}", "{above}={value}", "--{key}={value}",
    "{key}@x={value}", "{key} = {value}", "=x", "--config-name={value}", "-cn", "hydra.run.dir={value}", "..a=1",
    "config={value}",
)  # fmt: skip


def _mutated(command: dict[str, Any], draw: random.Random) -> list[str]:
    arguments = list(command["args"])
    keys = [key for _, _, trees in PAGES[command["system"]] for name in trees for key in tree(name)]
    for _ in range(draw.choice((1, 2, 6))):
        if arguments and draw.random() < 0.3:
            at = draw.randrange(len(arguments))
            arguments[at] = f"{arguments[at].partition('=')[0]}={draw.choice(VALUES)}"
        else:
            key = draw.choice(keys)
            above, _, leaf = key.rpartition(".")
            written = draw.choice(FORMS).format(key=key, value=draw.choice(VALUES), above=above or key, leaf=leaf)
            arguments.append(written)
    return arguments


@pytest.mark.parametrize("seed", range(8))
def test_a_mutated_command_gives_a_report_and_a_file(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    for _ in range(4):
        command = draw.choice(shrink.CAPTURED)
        system, arguments = SYSTEMS[command["system"]], _mutated(command, draw)
        try:
            made = migrate(system, Call(command["module"].split()[-1], arguments, tmp_path))
        except UserError:  # a sentence, such as for a file that is no YAML
            continue
        assert made.translation is not None
        assert list(report_lines(made.translation))
        assert isinstance(yaml.safe_load(file_text(system, made, "whet.yaml")), dict)
    checked = check_command(command["system"], command["module"], arguments, tmp_path)
    assert checked.verdict is Verdict.ACCEPTED or checked.reasons


@pytest.mark.parametrize(
    ("argument", "key"),
    [
        ("trainer.nnodes=two", "trainer.nnodes"),
        ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=abc", "ppo_micro_batch_size_per_gpu"),
        ("trainer.total_training_steps=[1,2]", "total_training_steps"),
        ("actor_rollout_ref.actor.use_kl_loss=perhaps", "use_kl_loss"),
        ("trainer.test_freq=often", "trainer.val_freq"),
        ("data.max_prompt_length=1e999", "max_prompt_length"),
    ],
)
def test_a_value_of_another_kind_is_refused(argument: str, key: str, tmp_path: Path) -> None:
    command = ["algorithm.adv_estimator=grpo", "actor_rollout_ref.rollout.name=vllm", "actor_rollout_ref.rollout.n=5"]
    assert check_command("verl", "verl.trainer.main_ppo", command, tmp_path).verdict is Verdict.ACCEPTED
    checked = check_command("verl", "verl.trainer.main_ppo", [*command, argument], tmp_path)
    assert checked.verdict is Verdict.REFUSED
    assert any(key in reason for reason in checked.reasons), checked.reasons
