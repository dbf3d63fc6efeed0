"""The benchmark of prefix trees, the whole of it at a tiny size on a CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
SIZES = {
    "turns": 4,
    "episodes": 2,
    "prompt": 9,
    "reasoning": 5,
    "answer": 2,
    "observation": 6,
    "rounds": 1,
    "played": 2,
}


def test_a_tiny_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    import tree_packing

    sizes = [part for name, value in SIZES.items() for part in (f"--{name}", str(value))]
    monkeypatch.setattr("sys.argv", ["tree_packing.py", "--tiny", "--out", str(tmp_path), *sizes])
    tree_packing.main()
    result = json.loads((tmp_path / "tree_packing.json").read_text())
    # A branch is prompt, answers and observations so far, and a turn without its last token.
    assert result["separate_tokens"] == 2 * sum(9 + turn * 8 + 6 for turn in range(4))
    assert result["tree_tokens"] == 2 * (9 + 3 * 8 + 4 * 6)
    assert result["gradient_difference"] < 1e-5
    assert result["prefilled_later_turns_kept"] == 2 * 3 * 7  # observations, and the last token of the turn before
    assert result["prefilled_later_turns_not_kept"] == 2 * sum(9 + turn * 8 for turn in range(1, 4))
