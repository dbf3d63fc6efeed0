"""Write the rows of the tiny run: `python prepare.py [FOLDER]`. The element that is meant is the largest digit."""

import json
import sys
from pathlib import Path
from random import Random


def main(folder: Path) -> None:
    """Write train.jsonl and test.jsonl without a list in common."""
    rng, drawn = Random(1), dict[tuple[str, ...], None]()
    while len(drawn) < 1100:
        drawn[tuple(rng.sample("0123456789", rng.randint(3, 6)))] = None
    lists = list(drawn)
    folder.mkdir(parents=True, exist_ok=True)
    for name, chosen in {"train": lists[100:], "test": lists[:100]}.items():
        rows = [{"problem": f"Sort these digits: {' '.join(each)}", "answer": max(each)} for each in chosen]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "data"))
