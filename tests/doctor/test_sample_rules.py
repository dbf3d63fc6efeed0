"""Rules that read samples, on samples in which a fault was injected and on those without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from whet.doctor.examine import examine_samples
from whet.doctor.rules import sample_rules
from whet.doctor.samples import RunSamples
from whet.tracking.run_folder import write_samples
from whet.types import Prompt, Sample


def rows(count: int = 32, **columns: Any) -> list[dict[str, Any]]:
    """Samples of 8 prompts, all different, but for what is given."""
    return [
        {
            "uid": f"train.jsonl:{i % 8}",
            "group": i % 8,
            "prompt": f"add {i % 8}",
            "response": f"the answer is {i}",
            "answer": str(i % 8),
            "reward": float(i % 2),
        }
        | {name: value(i) if callable(value) else value for name, value in columns.items()}
        for i in range(count)
    ]


def found(first: list[dict[str, Any]], last: list[dict[str, Any]], validated: list[dict[str, Any]]) -> list[str]:
    samples = RunSamples({1: first}, 9, last, validated)
    return [finding.rule for rule in sample_rules() if (finding := rule(samples)) is not None]


VALIDATED = rows(prompt=lambda i: f"subtract {i % 8}")


@pytest.mark.parametrize(
    ("rule", "first", "last", "validated"),
    [
        ("duplicates", rows(prompt=lambda i: f"add {i % 4}"), rows(), VALIDATED),
        ("leak", rows(), rows(), rows()),
        ("alike", rows(response=lambda i: f"always {i % 8}"), rows(), VALIDATED),
        ("repetition", rows(), rows(response=lambda i: f"{i} very " * 100), VALIDATED),
        ("exploited", rows(), rows(response="a good answer", reward=1.0), VALIDATED),
        ("exploited", rows(), rows(response=lambda i: f"good answer {i // 8 % 2}", reward=1.0), VALIDATED),
        ("template", rows(), rows(response=lambda i: f"{i}<|im_end|>\n<|im_start|>user"), VALIDATED),
        ("empty", rows(), rows(response=lambda i: "" if i % 4 else "x"), VALIDATED),
    ],
)
def test_each_fault_is_named_and_nothing_else(
    rule: str, first: list[dict[str, Any]], last: list[dict[str, Any]], validated: list[dict[str, Any]]
) -> None:
    assert found(first, last, validated) == [rule]


def test_sound_samples_have_no_findings() -> None:
    assert found(rows(), rows(), VALIDATED) == []
    classified = rows(response=lambda i: ["yes", "no"][i % 2], answer=lambda i: ["yes", "no"][i % 2])
    assert found(rows(), classified, VALIDATED) == []  # few answers, which many prompts share
    assert found(rows(prompt="how many?", media=1), rows(), VALIDATED) == []  # other pictures
    assert found(rows(prompt="play", end="won"), rows(), rows(prompt="play", end="won")) == []  # other games
    fallen = rows(response="a good answer", reward=0.1)
    assert found(rows(), fallen, VALIDATED) == []  # a policy that has collapsed, and earns less than at first
    played = rows(response="up", reward=1.0, turns=2)
    assert found(rows(), played, VALIDATED) == []  # an action that is right in several games
    assert found(rows(4), rows(4), rows(4)) == []  # too few to say anything
    assert found(rows(), [], []) == []


def test_a_run_folder_is_read_and_a_damaged_file_left_out(tmp_path: Path) -> None:
    assert examine_samples(tmp_path) == []
    written = [
        Sample.written(Prompt(f"train.jsonl:{i}", [1], f"p {i // 2}"), [1], [0.0], "stop", group=i, text=f"t {i}")
        for i in range(32)
    ]
    write_samples(tmp_path / "samples" / "train_000003.parquet", 3, written, False)
    (tmp_path / "samples" / "train_000004.parquet").write_bytes(b"PAR1 damaged")
    (diagnosis,) = examine_samples(tmp_path)
    assert diagnosis.finding.rule == "duplicates"
    assert diagnosis.finding.step == 3
