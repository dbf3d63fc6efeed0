"""Write the quickstart's questions with demonstrations: `python prepare.py [FOLDER]`. They are always right."""

import json
import sys
from pathlib import Path
from random import Random


def main(folder: Path) -> None:
    """Write train.jsonl and test.jsonl without a list of digits in common."""
    rng, drawn = Random(1), dict[tuple[str, ...], None]()
    while len(drawn) < 1100:
        drawn[tuple(rng.sample("0123456789", rng.randint(3, 7)))] = None
    lists = list(drawn)
    folder.mkdir(parents=True, exist_ok=True)
    for name, chosen in {"train": lists[100:], "test": lists[:100]}.items():
        rows = []
        for digits in chosen:
            answer = " ".join(sorted(digits))
            row = {
                "problem": f"Sort these digits: {' '.join(digits)}",
                "answer": answer,
                "response": f"Answer: {answer}",
            }
            rows.append(json.dumps(row) + "\n")
        (folder / f"{name}.jsonl").write_text("".join(rows), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "data"))
