"""What the jobs of run.sh say of the same models, side by side; exit code 1 where two of them differ.

python agree.py FOLDER
"""

import json
import sys
from pathlib import Path


def validation(run: Path, first: bool) -> float:
    """The accuracy of a run's first or last validation."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found = [line["val/accuracy"] for line in lines if "val/accuracy" in line]
    return found[0 if first else -1]


def evaluation(folder: Path) -> float:
    """The mean accuracy that an evaluation reports."""
    report = json.loads((folder / "report.json").read_text())
    (dataset,) = report["datasets"].values()
    (score,) = (value for name, value in dataset["metrics"].items() if name.startswith("avg@"))
    return score["mean"]


def main() -> None:
    out = Path(sys.argv[1])
    pairs = {
        "fine-tuned model": {
            "whet eval": evaluation(out / "eval_tuned"),
            "first validation of whet train": validation(out / "rl", first=True),
        },
        "trained model": {
            "last validation of whet train": validation(out / "rl", first=False),
            "whet eval, merged": evaluation(out / "eval_model"),
        },
        "merged model, greedy": {
            "whet eval": evaluation(out / "eval_greedy"),
            "whet eval of whet serve": evaluation(out / "eval_served"),
        },
    }
    for model, numbers in pairs.items():
        print(f"{model}: " + ", ".join(f"{value:.2%} ({job})" for job, value in numbers.items()))
    differing = [model for model, numbers in pairs.items() if max(numbers.values()) - min(numbers.values()) > 1e-9]
    if differing:
        sys.exit(f"the jobs differ on: {', '.join(differing)}")
    print("the jobs agree")


if __name__ == "__main__":
    main()
