"""InfiGUI-G1's adaptive exploration reward for several candidates in one response (Liu et al., 2025).

With N candidates of which the k-th is the first to hit: 1/√(N·k). Without a hit: −1/N. Efficiency is utility over
cost, and the cost is the geometric mean of what was proposed (N) and what had to be checked (k, or all N): proposing
more pays off where the first idea is wrong, and costs where it is right. A response with candidates earns 1 on top. One
without, or with three points on a line, which scan the screen instead of choosing, earns −1.

Compared with the authors' InfiXAI/InfiGUI-G1 (recipe/infigui-g1/reward_fn.py): the same numbers. It reads the points of
a JSON list after <think>...</think> alone; here any [x, y] is a point.
"""

import json
import math
import re
from itertools import combinations

POINT = re.compile(r"[\[(]\s*(-?\d+(?:\.\d+)?)\s*,\s*(-?\d+(?:\.\d+)?)\s*[\])]")
MOST = 16  # candidates that are read


def compute_score(reward_input: dict) -> dict:
    """Score a response with points against the box [x1, y1, x2, y2] of the row, or with words against one word."""
    response, truth = reward_input["response"], reward_input["ground_truth"]
    box = read_box(truth)
    if box is not None:
        found = [(float(x), float(y)) for x, y in POINT.findall(response)][:MOST]
        hits = [box[0] <= x <= box[2] and box[1] <= y <= box[3] for x, y in found]
        scanned = any(on_a_line(*three) for three in combinations(found, 3))
    else:
        words = response.strip().removeprefix("Answer:").split()[:MOST]
        found, hits, scanned = words, [word == str(truth).strip() for word in words], False
    reward = 1.0 + exploration_reward(hits) if hits and not scanned else -1.0
    first = bool(hits) and hits[0]
    return {"overall": reward, "accuracy": float(first), "found": float(any(hits)), "candidates": float(len(found))}


def exploration_reward(hits: list[bool]) -> float:
    """Return 1/√(N·k) with k the place of the first hit, −1/N without one."""
    if True in hits:
        return 1.0 / math.sqrt(len(hits) * (hits.index(True) + 1))
    return -1.0 / len(hits)


def on_a_line(one: tuple[float, float], two: tuple[float, float], three: tuple[float, float]) -> bool:
    """Return True if the triangle of three points has no area."""
    return math.isclose((two[1] - one[1]) * (three[0] - one[0]), (three[1] - one[1]) * (two[0] - one[0]))


def read_box(truth: object) -> list[float] | None:
    """Return the four numbers of a box (a list, an object with x1, y1, x2, y2, or JSON of either), None for a word."""
    if isinstance(truth, str):
        try:
            truth = json.loads(truth)
        except ValueError:
            return None
    if isinstance(truth, dict):
        truth = [truth[name] for name in ("x1", "y1", "x2", "y2") if name in truth]
    if not isinstance(truth, list):
        return None
    if len(truth) != 4 or not all(isinstance(each, int | float) for each in truth):
        raise ValueError(f"the truth {truth} is no box: four numbers x1, y1, x2, y2 are expected")
    return [float(each) for each in truth]
