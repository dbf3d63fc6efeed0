"""Make conversations of GSM8K: `python prepare.py GSM8K_FOLDER [FOLDER]`.

The folder holds what `whet data gsm8k --format jsonl` writes.
The user begins with the last sentence of a problem, the question, and keeps the facts to itself until it is asked.
"""

import json
import re
import sys
from pathlib import Path


def conversation(problem: str, answer: str) -> dict:
    """Return the row of one problem."""
    sentences = re.split(r"(?<=[.?!])\s+", problem.strip())
    question = next((each for each in reversed(sentences) if each.endswith("?")), sentences[-1])
    opening = f"I need help with something. {question}"
    return {"prompt": opening, "intent": f"You want an answer to this problem: {problem}", "answer": answer}


def main(source: Path, folder: Path) -> None:
    """Write train.jsonl and test.jsonl."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("train", "test"):
        lines = (source / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines if line.strip()]
        made = [conversation(str(row["prompt"]), str(row["answer"]).rpartition("####")[2].strip()) for row in rows]
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python prepare.py GSM8K_FOLDER [FOLDER]")
    main(Path(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) == 3 else "data"))
