"""Write the rows of the tiny run: letters to count in spelled-out words. `python prepare.py [FOLDER]`.

Demonstrations of the cold start: 20% walk along the word and count right, 40% get the count right although the walk
is wrong, 40% are wrong altogether. The second kind are flawed successes: a reward for answers alone cannot tell them
apart.
"""

import json
import sys
from pathlib import Path
from random import Random

LETTERS, LONGEST = "abc", 5
KINDS = {"sound": 0.2, "flawed": 0.4, "wrong": 0.4}


def walk(letter: str, word: str, wrong_at: int | None) -> tuple[str, int]:
    """Return the steps and the count at the end; from `wrong_at` on it is one too many."""
    count, steps = 0, []
    for i, each in enumerate(word):
        count += (each == letter) + (i == wrong_at)
        steps.append(f"{each} {count}")
    return " ".join(steps), count


def demonstration(rng: Random, letter: str, word: str) -> str:
    """Return a response of one of the three kinds."""
    (kind,) = rng.choices(list(KINDS), list(KINDS.values()))
    steps, count = walk(letter, word, None if kind == "sound" else rng.randrange(len(word)))
    return f"{steps} = {word.count(letter) if kind == 'flawed' else count}"


def main(folder: Path) -> None:
    """Write sft.jsonl, train.jsonl and test.jsonl; no question of the last is in the others."""
    rng = Random(1)

    def draw() -> tuple[str, str]:
        word = "".join(rng.choice(LETTERS) for _ in range(rng.randint(3, LONGEST)))
        return rng.choice(word), word

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
        for letter, word in drawn:
            row = {"problem": f"How many {letter} are there in {'-'.join(word)}?", "answer": str(word.count(letter))}
            if name == "sft":
                row["response"] = demonstration(rng, letter, word)
            rows.append(json.dumps(row) + "\n")
        (folder / f"{name}.jsonl").write_text("".join(rows), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "data"))
