"""The prompts of the GPU benchmark, the same for every program: as rows, as chats and as token ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jinja2
from prompts import problems

EXAMPLES = Path(__file__).parent.parent / "examples"


def write_workload(folder: Path, model: str, data: Path | None, count: int, tiny: bool) -> None:
    """Write `rows.jsonl` (prompt, answer) and `chats.json` (turns, ids, answer) of `count` prompts to `folder`."""
    from whet.model.load import load_tokenizer

    rows = _rows(data, count, tiny)
    template = jinja2.Template(format_prompt(tiny).read_text())
    turns = [[{"role": "user", "content": template.render(content=row["prompt"])}] for row in rows]
    ids = load_tokenizer(model).apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
    chats = [{"turns": t, "ids": i, "answer": row["answer"]} for t, i, row in zip(turns, ids, rows)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "chats.json").write_text(json.dumps(chats))


def read_chats(folder: str, count: int | None = None) -> list[dict[str, Any]]:
    """The first `count` prompts."""
    return json.loads((Path(folder) / "chats.json").read_text())[:count]


def format_prompt(tiny: bool) -> Path:
    """The template that turns a question into what the model reads."""
    return EXAMPLES / "format_prompt" / ("quickstart.jinja" if tiny else "gsm8k.jinja")


def reward_function(tiny: bool) -> Path:
    """What scores the responses."""
    return EXAMPLES / "reward_function" / ("quickstart.py" if tiny else "gsm8k.py")


def _rows(data: Path | None, count: int, tiny: bool) -> list[dict[str, str]]:
    if tiny:
        from whet.assets import builtin

        data = builtin("whet/quickstart", say=print) / "train.jsonl"
    if data is None:
        texts = [{"prompt": text, "answer": "#### 1"} for text in problems(count)]
    else:
        lines = [json.loads(line) for line in data.read_text().splitlines()]
        texts = [{"prompt": row.get("question") or row["problem"], "answer": row["answer"]} for row in lines]
    return [texts[i % len(texts)] for i in range(count)]
