"""The code in docs/rollout.md runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).parents[2] / "docs" / "rollout.md"


def test_the_guides_examples_run(llama, tmp_path) -> None:
    llama.model().save_pretrained(tmp_path)
    llama.tokenizer.save_pretrained(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    names: dict[str, Any] = {"path": str(tmp_path)}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), names)
    assert len(blocks) == 3
    assert len(names["samples"]) == 4
    assert [type(answer) for answer in names["answers"]] == [str, str]
    assert [sample.reward in (0.0, 1.0) for sample in names["group"].samples] == [True] * 4
