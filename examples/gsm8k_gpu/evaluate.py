"""Greedy accuracy on GSM8K's test problems, by whet's validation, with an interval.

python evaluate.py --model FOLDER --data gsm8k/ --out FOLDER [--set KEY=VALUE ...]
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from whet.cli import main as whet

HERE = Path(__file__).parent
Z = 1.959964  # 95% of a normal distribution lies within so many standard deviations


@dataclass(frozen=True, slots=True)
class Score:
    """How many problems a model solves."""

    correct: int
    problems: int
    solved: list[bool]  # in the order of the file, so that two models compare problem by problem

    @property
    def accuracy(self) -> float:
        return self.correct / self.problems

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.correct, self.problems)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.accuracy:.1%} ({self.correct} of {self.problems}, 95% interval {low:.1%} to {high:.1%})"


def evaluate(model: Path | str, data: Path, out: Path, keys: Sequence[str] = ()) -> Score:
    """Validate the model in a folder on data/test.jsonl; `out` becomes the run folder of that validation."""
    code = whet(
        [
            "train",
            f"config={HERE / 'grpo.yaml'}",
            *keys,
            f"data.val_files={data / 'test.jsonl'}",
            f"worker.actor.model.model_path={model}",
            f"trainer.save_checkpoint_path={out}",
            "trainer.val_only=true",
        ]
    )
    if code:
        raise SystemExit(code)
    table = pq.read_table(out / "samples" / "val_000000.parquet", columns=["score/accuracy"])
    solved = [value == 1.0 for value in table["score/accuracy"].to_pylist()]
    score = Score(sum(solved), len(solved), solved)
    (out / "score.json").write_text(json.dumps(asdict(score)))
    return score


def read_score(out: Path) -> Score:
    """What `evaluate` left in its folder."""
    return Score(**json.loads((out / "score.json").read_text()))


def wilson(correct: int, problems: int) -> tuple[float, float]:
    """The 95% interval of a share (Wilson, 1927), which is right for small shares too."""
    p, n = correct / problems, problems
    middle = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
    reach = Z / (1 + Z * Z / n) * math.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    return middle - reach, middle + reach


def gain(before: Score, after: Score, draws: int = 10000) -> tuple[float, float]:
    """The 95% interval of the difference in accuracy on the same problems, by bootstrap over problems."""
    difference = np.array(after.solved, dtype=np.int8) - np.array(before.solved, dtype=np.int8)
    n, rng = len(difference), np.random.default_rng(0)
    # Resampled problems are a multinomial of the three possible differences.
    counts = rng.multinomial(n, [(difference == value).mean() for value in (-1, 0, 1)], size=draws)
    low, high = np.quantile((counts[:, 2] - counts[:, 0]) / n, [0.025, 0.975])
    return float(low), float(high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", type=Path, required=True, help="folder with test.jsonl")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    print(evaluate(arguments.model, arguments.data, arguments.out, arguments.set))


if __name__ == "__main__":
    main()
