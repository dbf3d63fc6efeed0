"""Write a project that runs as it is: rows, a reward, a config, a README and the same from Python.

The texts lie in `projects/KIND/`, some in the examples; rows and pictures are drawn here, and `notebook.py` becomes
`notebook.ipynb`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from whet.config.examples import examples_folder
from whet.errors import UserError

TEXTS = Path(__file__).parent / "projects"
KINDS = tuple(sorted(path.name for path in TEXTS.iterdir() if (path / "config.yaml").is_file()))
_ROWS = {"train.jsonl": 400, "test.jsonl": 100}
_FROM_EXAMPLES = {"agent": {"env.py": "agents/game/guess.py"}}  # files that an example has too
_CELL = "# %%"


def write_project(folder: Path, kind: str) -> list[Path]:
    """Write the files of a project into a new or empty folder; return them in the order of their names."""
    if kind not in KINDS:
        raise UserError(f"there is no project of kind {kind!r}; choose from {', '.join(KINDS)}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists and is not an empty folder; name a new one")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for text in sorted((TEXTS / kind).iterdir()):
            if text.is_file() and text.name != "notebook.py":
                shutil.copyfile(text, folder / text.name)
        for name, example in _FROM_EXAMPLES.get(kind, {}).items():
            shutil.copyfile(examples_folder() / example, folder / name)
        if (TEXTS / kind / "notebook.py").is_file():
            notebook = as_notebook((TEXTS / kind / "notebook.py").read_text(encoding="utf-8"))
            (folder / "notebook.ipynb").write_text(json.dumps(notebook, indent=1) + "\n", encoding="utf-8")
        for name, count in _ROWS.items():
            lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in _rows(kind, name, count, folder)]
            (folder / name).write_text("".join(lines), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror or error}") from error
    return sorted(path for path in folder.iterdir())


def _rows(kind: str, name: str, count: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Draw the rows of a file; those of two files have no prompt in common."""
    rng = Random(f"{kind} {name}")
    if kind == "agent":
        from whet.assets.guess import rows

        yield from rows()
        return
    if kind == "vision":
        yield from _picture_rows(rng, name.removesuffix(".jsonl"), count, folder)
        return
    is_test, seen = name == "test.jsonl", set[str]()
    while len(seen) < count:
        digits = " ".join(rng.sample("0123456789", rng.randint(4, 7)))
        if digits in seen or _is_held_out(digits) != is_test:
            continue
        seen.add(digits)
        answer = " ".join(sorted(digits.split(), reverse=True))
        if kind == "sft":
            yield {"prompt": f'Sort these digits: {digits}\nBegin with "Answer:"', "response": f"Answer: {answer}"}
        else:
            yield {"prompt": f"Sort these digits: {digits}", "answer": answer}


def _is_held_out(digits: str) -> bool:
    return sum(map(int, digits.split())) % 5 == 0


def _picture_rows(rng: Random, name: str, count: int, folder: Path) -> Iterator[dict[str, Any]]:
    from whet.assets.questions import count as count_question

    (folder / "images").mkdir(exist_ok=True)
    for i in range(count):
        question = count_question(rng)
        path = f"images/{name}_{i:03d}.png"
        question.images[0].save(folder / path)
        yield {"prompt": question.problem, "answer": question.answer, "images": [path]}


def as_notebook(script: str) -> dict[str, Any]:
    """Turn a script with `# %%` cells into a Jupyter notebook (format 4.5)."""
    cells = []
    for i, part in enumerate(f"\n{script}".split(f"\n{_CELL}")[1:]):
        head, _, body = part.partition("\n")
        lines = body.strip("\n").splitlines()
        if "[markdown]" in head:
            lines = [line.removeprefix("#").removeprefix(" ") for line in lines]
        source = [f"{line}\n" for line in lines[:-1]] + lines[-1:]
        cell: dict[str, Any] = {"id": f"cell-{i}", "metadata": {}, "source": source}
        if "[markdown]" in head:
            cells.append({"cell_type": "markdown", **cell})
        else:
            cells.append({"cell_type": "code", "execution_count": None, "outputs": [], **cell})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
