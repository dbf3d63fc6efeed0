"""Write the rows of the tiny run: digits to sort, with working. `python prepare.py [FOLDER]`.

A response names the digits it was given, then sorts them: "5 2 9 = 2 5 9". Demonstrations of the cold start: 15% do so,
35% have the right answer behind other digits than were given, 50% a wrong answer. The second kind are flawed
successes: a reward for answers alone cannot tell them from the first.
"""

import json
import sys
from pathlib import Path
from random import Random

KINDS = {"sound": 0.15, "flawed": 0.35, "wrong": 0.5}


def demonstration(rng: Random, digits: tuple[str, ...]) -> str:
    """Return a response of one of the three kinds."""
    (kind,) = rng.choices(list(KINDS), list(KINDS.values()))
    working = list(digits)
    while kind == "flawed" and working == list(digits):
        rng.shuffle(working)
    answer = sorted(digits) if kind != "wrong" else sorted(digits, reverse=True)
    return f"{' '.join(working)} = {' '.join(answer)}"


def main(folder: Path) -> None:
    """Write sft.jsonl, train.jsonl and test.jsonl; no list of the last is in the others."""
    rng = Random(1)

    def draw() -> tuple[str, ...]:
        return tuple(rng.sample("0123456789", rng.randint(3, 5)))

    held_out = set()
    while len(held_out) < 100:
        held_out.add(draw())
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in {"sft": 3840, "train": 2000, "test": 100}.items():
        drawn = sorted(held_out) if name == "test" else []
        while len(drawn) < count:
            one = draw()
            drawn += [one] if one not in held_out else []
        rows = []
        for digits in drawn:
            row = {"problem": f"Sort these digits: {' '.join(digits)}", "answer": " ".join(sorted(digits))}
            if name == "sft":
                row["response"] = demonstration(rng, digits)
            rows.append(json.dumps(row) + "\n")
        (folder / f"{name}.jsonl").write_text("".join(rows), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "data"))
