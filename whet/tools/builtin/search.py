"""Search over a local corpus: passages of a JSON lines or Parquet file, ranked by BM25."""

from __future__ import annotations

import heapq
import json
import math
import re
import threading
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from whet.errors import UserError
from whet.tools.protocol import PlainTool, ToolResult, function_schema

WORD = re.compile(r"\w+")
K1, B = 1.5, 0.75  # BM25's usual constants
FIELDS = ("text", "contents", "content", "passage")


class Index:
    """Passages by their words. Scores are those of Lucene's BM25."""

    def __init__(self, passages: list[str]) -> None:
        self.passages = passages
        self._found: dict[str, list[tuple[int, int]]] = defaultdict(list)  # word -> (passage, count)
        lengths = []
        for number, passage in enumerate(passages):
            words = Counter(WORD.findall(passage.lower()))
            lengths.append(sum(words.values()))
            for word, count in words.items():
                self._found[word].append((number, count))
        mean = sum(lengths) / max(1, len(lengths)) or 1.0
        self._norm = [K1 * (1 - B + B * length / mean) for length in lengths]

    def search(self, query: str, count: int) -> list[tuple[float, int]]:
        """Return (score, passage) of the best passages; of equal ones the earlier."""
        scores: dict[int, float] = defaultdict(float)
        for word in dict.fromkeys(WORD.findall(query.lower())):
            holders = self._found.get(word, [])
            weight = math.log(1 + (len(self.passages) - len(holders) + 0.5) / (len(holders) + 0.5))
            for number, times in holders:
                scores[number] += weight * times / (times + self._norm[number])
        return heapq.nsmallest(count, ((-score, number) for number, score in scores.items()))


class Search(PlainTool):
    """Finds passages of a corpus."""

    name = "search"
    schema = function_schema(
        "search",
        "Search a corpus and return the passages that fit best.",
        {"query": {"type": "string", "description": "words to look for"}},
        ["query"],
    )

    def __init__(self, corpus: str, field: str = "", count: int = 3, most_characters: int = 2000) -> None:
        """`corpus` is a .jsonl or .parquet file whose column `field` holds passages; `count` of them are returned."""
        self._path, self._field, self._count, self._most = Path(corpus), field, count, most_characters
        if not self._path.is_file():
            raise UserError(f"tool search: there is no corpus {corpus}; give corpus= a .jsonl or .parquet file")
        self._index: Index | None = None
        self._lock = threading.Lock()

    def execute(self, sample_id: str, arguments: dict[str, Any]) -> ToolResult:
        """Return the best passages for `query`, numbered."""
        with self._lock:
            if self._index is None:
                self._index = Index(read_passages(self._path, self._field))
        found = self._index.search(str(arguments["query"]), self._count)
        texts = [
            f"[{place}] {self._index.passages[number][: self._most]}" for place, (_, number) in enumerate(found, 1)
        ]
        return ToolResult("\n".join(texts) or "nothing found")


def read_passages(path: Path, field: str) -> list[str]:
    """Return the passages of a corpus file."""
    if path.suffix == ".parquet":
        import pyarrow.parquet

        rows = pyarrow.parquet.read_table(path).to_pylist()
    else:
        rows = []
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if line.strip():
                try:
                    rows.append(json.loads(line))
                except ValueError as error:
                    raise UserError(f"tool search: {path}:{number} is not valid JSON ({error})") from None
    return [_passage(row, field, f"{path}:{number}") for number, row in enumerate(rows, start=1)]


def _passage(row: Any, field: str, where: str) -> str:
    if isinstance(row, str):
        return row
    names = [field] if field else [name for name in FIELDS if isinstance(row, dict) and name in row]
    if not names or not isinstance(row, dict) or not isinstance(row.get(names[0]), str):
        wanted = field or ", ".join(FIELDS)
        raise UserError(f"tool search: {where} has no text in {wanted}; name the column with field=")
    title = row.get("title")
    return f"{title}\n{row[names[0]]}" if isinstance(title, str) else row[names[0]]


TOOL = Search
