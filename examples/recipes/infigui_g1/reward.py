"""InfiGUI-G1's adaptive exploration reward for several candidates in one response (Liu et al., 2025).

With N candidates of which the k-th is the first to hit: 1/√(N·k). Without a hit: −1/√N. Efficiency is utility over
cost, and the cost is the geometric mean of what was proposed (N) and what had to be checked (k): proposing more pays
off where the first idea is wrong, and costs where it is right. Points on a line, which scan the screen instead of
choosing, earn −1.
"""

import json
import math
import re

POINT = re.compile(r"[\[(]\s*(-?\d+(?:\.\d+)?)\s*,\s*(-?\d+(?:\.\d+)?)\s*[\])]")
MOST = 16  # candidates that are read


def compute_score(reward_input: dict) -> dict:
    """Score a response with points against the box [x1, y1, x2, y2] of the row, or with words against one word."""
    response, truth = reward_input["response"], reward_input["ground_truth"]
    box = read_box(truth)
    if box is not None:
        found = [(float(x), float(y)) for x, y in POINT.findall(response)][:MOST]
        hits = [box[0] <= x <= box[2] and box[1] <= y <= box[3] for x, y in found]
        scanned = len(found) >= 3 and on_a_line(found)
    else:
        words = response.strip().removeprefix("Answer:").split()[:MOST]
        found, hits, scanned = words, [word == str(truth).strip() for word in words], False
    reward = exploration_reward(hits) if not scanned else -1.0
    first = bool(hits) and hits[0]
    return {"overall": reward, "accuracy": float(first), "found": float(any(hits)), "candidates": float(len(found))}


def exploration_reward(hits: list[bool]) -> float:
    """Return 1/√(N·k) with k the place of the first hit, −1/√N without one, −1 without a candidate."""
    if not hits:
        return -1.0
    if True in hits:
        return 1.0 / math.sqrt(len(hits) * (hits.index(True) + 1))
    return -1.0 / math.sqrt(len(hits))


def on_a_line(points: list[tuple[float, float]]) -> bool:
    """Return True if all points lie on one line."""
    (x0, y0), (x1, y1) = points[0], max(points, key=lambda p: math.dist(p, points[0]))
    reach = math.dist((x0, y0), (x1, y1))
    if reach == 0:
        return True
    return all(abs((x1 - x0) * (y - y0) - (y1 - y0) * (x - x0)) / reach <= 1e-6 * reach for x, y in points)


def read_box(truth: object) -> list[float] | None:
    """Return the four numbers of a box given as a list or as JSON; None if the truth is something else."""
    if isinstance(truth, str):
        try:
            truth = json.loads(truth)
        except ValueError:
            return None
    if not isinstance(truth, list) or len(truth) != 4:
        return None
    return [float(each) for each in truth]
