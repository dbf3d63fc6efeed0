"""Write the cold start and the questions of the tiny run: `python prepare.py [FOLDER]`.

R1's cold start shows a few thousand long solutions. Here a demonstration copies the digits into its thoughts and then
sorts them, up or down or not at all: the form is always right, the answer less often.
"""

import json
import sys
from pathlib import Path
from random import Random


def main(folder: Path) -> None:
    """Write sft.jsonl, train.jsonl and test.jsonl; no list of digits of the last is in the others."""
    rng, held_out = Random(1), set()
    while len(held_out) < 100:
        held_out.add(tuple(rng.sample("0123456789", rng.randint(3, 4))))
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in {"sft": 3840, "train": 2000, "test": 100}.items():
        lists = sorted(held_out) if name == "test" else []
        while len(lists) < count:
            digits = tuple(rng.sample("0123456789", rng.randint(3, 4)))
            lists += [digits] if digits not in held_out else []
        rows = []
        for digits in lists:
            row = {"problem": f"Sort these digits: {' '.join(digits)}", "answer": " ".join(sorted(digits))}
            if name == "sft":
                said = rng.choices([sorted(digits), sorted(digits, reverse=True), digits], [0.4, 0.3, 0.3])[0]
                row["response"] = f"<think>{' '.join(digits)}</think> {' '.join(said)}"
            rows.append(json.dumps(row) + "\n")
        (folder / f"{name}.jsonl").write_text("".join(rows), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "data"))
