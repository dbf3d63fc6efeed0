"""A prefix tree over rows of tokens, and its tokens in one packed row.

Every token of the tree is packed once and attends to its ancestors. The row is a depth-first walk that goes to the
child with the most tokens first: the descendants of a token lie next to each other, and a path down the tree is one
stretch of the row as long as it follows the largest children. Such a stretch is an attention segment; its prefix is
where it leaves another one, and what that one has as prefix itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(slots=True, eq=False)
class _Node:
    """Tokens that always follow each other, and what follows them."""

    keys: np.ndarray
    children: dict[int, _Node] = field(default_factory=dict)  # by first key
    tokens: int = 0  # of the node and of all below it; known once the tree is laid out
    start: int = 0  # its place in the packed row; the same


class PrefixTree:
    """Rows of keys, with common beginnings held once."""

    def __init__(self) -> None:
        self._root = _Node(np.empty(0, dtype=np.int64))
        self.size = 0  # tokens of the tree

    def add(self, keys: np.ndarray) -> None:
        """Add a row."""
        node, at = self._root, 0
        while at < len(keys):
            child = node.children.get(int(keys[at]))
            if child is None:
                node.children[int(keys[at])] = _Node(keys[at:])
                self.size += len(keys) - at
                return
            common = _common(child.keys, keys[at:])
            if common < len(child.keys):
                upper = _Node(child.keys[:common], {int(child.keys[common]): child})
                child.keys = child.keys[common:]
                node.children[int(keys[at])] = child = upper
            node, at = child, at + common

    def lay(self) -> np.ndarray:
        """Place all tokens in a row; return its attention segments (S, 4): start, length, prefix start and length."""
        self._count()
        segments: list[tuple[int, int, int, int]] = []
        n = 0
        # Where a path leaves another: (first node, start of the other, tokens of the other before it). The last one
        # that was pushed is the deepest of those that hang on a path.
        pending = [(node, 0, 0) for node in reversed(self._root.children.values())]
        while pending:
            node, prefix_start, prefix_length = pending.pop()
            start = n
            while True:
                node.start = n
                n += len(node.keys)
                if not node.children:
                    break
                largest = max(node.children.values(), key=lambda child: child.tokens)
                others = [child for child in node.children.values() if child is not largest]
                pending += [(child, start, n - start) for child in reversed(others)]
                node = largest
            segments.append((start, n - start, prefix_start, prefix_length))
        return np.array(segments, dtype=np.int64).reshape(-1, 4)

    def _count(self) -> None:
        """Count the tokens below every node, the deepest first."""
        order, pending = [], [self._root]
        while pending:
            node = pending.pop()
            order.append(node)
            pending += node.children.values()
        for node in reversed(order):
            node.tokens = len(node.keys) + sum(child.tokens for child in node.children.values())

    def places(self, keys: np.ndarray) -> np.ndarray:
        """Return the places (L,) of a row that was added, after `lay`."""
        node, at, parts = self._root, 0, [np.empty(0, dtype=np.int64)]
        while at < len(keys):
            node = node.children[int(keys[at])]
            length = min(len(node.keys), len(keys) - at)
            parts.append(np.arange(node.start, node.start + length))
            at += length
        return np.concatenate(parts)


def _common(one: np.ndarray, other: np.ndarray) -> int:
    """Return how many first keys are equal."""
    n = min(len(one), len(other))
    differs = one[:n] != other[:n]
    first = int(differs.argmax())
    return first if differs[first] else n
