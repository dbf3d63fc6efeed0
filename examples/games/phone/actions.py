"""Actions that a model writes, one in a turn: `tap(40, 120)`, `swipe(40, 500, 40, 100)`, `text("milk")`, `key(back)`.

An action stands in `<action>...</action>`, or else alone on the last line, behind thoughts if there are any. `wait()`
lets a second pass and `done()` says that the task is finished.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from phone.device import KEYS, PRINTABLE, Device

THOUSAND = 1000  # parts of a side, where coordinates are relative
COORDINATES = ("pixels", "relative")
GRAMMAR = 'tap(x, y), swipe(x, y, x, y), text("..."), key(back), wait() or done()'
LONGEST_TEXT = 200
_TAGGED = re.compile(r"<action>(.*?)</action>", re.DOTALL)
_CALL = re.compile(r"(tap|swipe|text|key|wait|done)\((.*)\)", re.DOTALL)
_NUMBER = re.compile(r"\s*(\d{1,5})\s*", re.ASCII)


class BadAction(Exception):  # noqa: N818
    """A turn has no action, or one that cannot be done; the message is for the model."""


@dataclass(frozen=True, slots=True)
class Action:
    """A call on the device; points are in pixels of the screen that was shown."""

    name: str
    points: tuple[tuple[int, int], ...] = ()
    word: str = ""

    def __str__(self) -> str:
        inner = ", ".join(str(each) for point in self.points for each in point)
        return f"{self.name}({json.dumps(self.word) if self.name == 'text' else self.word or inner})"


def read_action(turn: str, size: tuple[int, int], coordinates: str = "pixels") -> Action:
    """Return the action of a turn. Coordinates must lie on the screen of `size`; relative ones go from 0 to 1000."""
    behind = turn.rpartition("</think>")[2]
    tagged = _TAGGED.findall(behind)
    lines = [line for line in (tagged[-1] if tagged else behind).splitlines() if line.strip()]
    found = _CALL.fullmatch(lines[-1].strip()) if lines else None
    if found is None:
        raise BadAction(f"There is no action on your last line. Write {GRAMMAR}.")
    name, inner = found.groups()
    if name in ("tap", "swipe"):
        return Action(name, _points(name, inner, size, coordinates))
    if name == "key":
        return Action(name, word=_key(inner.strip().strip("\"'")))
    if name == "text":
        return Action(name, word=_text(inner.strip()))
    if inner.strip():
        raise BadAction(f"{name}() takes nothing.")
    return Action(name)


def perform(action: Action, device: Device, scale: Callable[[tuple[int, int]], tuple[int, int]]) -> None:
    """Do an action on a device; `scale` takes points of the screen that was shown to pixels of the device."""
    points = [each for point in action.points for each in scale(point)]
    if action.name == "tap":
        device.tap(*points)
    elif action.name == "swipe":
        device.swipe(*points)
    elif action.name == "text":
        device.text(action.word)
    elif action.name == "key":
        device.key(action.word)
    elif action.name == "wait":
        device.wait(1.0)


def _points(name: str, inner: str, size: tuple[int, int], coordinates: str) -> tuple[tuple[int, int], ...]:
    parts = [_NUMBER.fullmatch(part) for part in inner.split(",")]
    wanted = 2 if name == "tap" else 4
    if len(parts) != wanted or not all(parts):
        raise BadAction(f"{name} takes {wanted} whole numbers.")
    numbers = [int(part[1]) for part in parts if part]
    limits = (THOUSAND + 1, THOUSAND + 1) if coordinates == "relative" else size
    pairs = list(zip(numbers[::2], numbers[1::2]))
    for x, y in pairs:
        if x >= limits[0] or y >= limits[1]:
            allowed = f"x goes from 0 to {limits[0] - 1} and y from 0 to {limits[1] - 1}"
            raise BadAction(f"({x}, {y}) is not on the screen: {allowed}.")
    if coordinates == "relative":
        pairs = [tuple(min(side - 1, each * side // THOUSAND) for each, side in zip(pair, size)) for pair in pairs]  # type: ignore[misc]
    return tuple(pairs)


def _key(name: str) -> str:
    if name not in KEYS:
        raise BadAction(f"There is no key {name[:20]!r}: choose from {', '.join(KEYS)}.")
    return name


def _text(inner: str) -> str:
    try:
        text = json.loads(inner)
    except (ValueError, RecursionError):
        text = None
    if not isinstance(text, str) or len(text) > LONGEST_TEXT or not PRINTABLE.fullmatch(text):
        raise BadAction(f'text takes 1 to {LONGEST_TEXT} characters of ASCII in quotes: text("milk").')
    return text
