"""Write rows with demonstrations: `python prepare.py`, or `python prepare.py FILE.parquet [FOLDER]`.

Without a file: the quickstart's questions with answers that are always right, for the tiny run. With one: chats of
`UCLA-AGI/SPIN_iter0` (column `real`) or `HuggingFaceH4/ultrachat_200k` (column `messages`), the first answer of each
as the demonstration; 200 rows are held out.
"""

import json
import sys
from pathlib import Path
from random import Random


def digits() -> dict[str, list[dict]]:
    """Return rows of sorted digits, training and test without a list in common."""
    rng, drawn = Random(1), dict[tuple[str, ...], None]()
    while len(drawn) < 1100:
        drawn[tuple(rng.sample("0123456789", rng.randint(3, 7)))] = None
    rows = []
    for each in drawn:
        answer = " ".join(sorted(each))
        problem = f"Sort these digits: {' '.join(each)}"
        rows.append({"problem": problem, "answer": answer, "response": f"Answer: {answer}"})
    return {"train": rows[100:], "test": rows[:100]}


def chats(file: str) -> dict[str, list[dict]]:
    """Return what comes before the first answer of every chat in a file, and that answer."""
    import pyarrow.parquet

    if not Path(file).is_file():
        sys.exit(f"there is no file {file}; usage: python prepare.py FILE.parquet [FOLDER]")
    table = pyarrow.parquet.read_table(file)
    (column,) = [name for name in ("real", "messages") if name in table.column_names][:1] or [None]
    if column is None:
        sys.exit(f"{file} has neither a column real nor messages; its columns: {', '.join(table.column_names)}")
    rows = []
    for turns in table[column].to_pylist():
        place = next((i for i, turn in enumerate(turns) if turn["role"] == "assistant"), 0)
        if place and turns[place]["content"].strip():
            rows.append({"prompt": turns[:place], "response": turns[place]["content"]})
    held_out = min(200, len(rows) // 2)
    return {"train": rows[held_out:], "test": rows[:held_out]}


def main(arguments: list[str]) -> None:
    """Write train.jsonl and test.jsonl."""
    files = chats(arguments[0]) if arguments else digits()
    folder = Path(arguments[1] if len(arguments) > 1 else "data")
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in files.items():
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
