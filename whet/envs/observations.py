"""What environments return, checked: observations as chat messages and images, rewards and info as numbers.

Contents are texts in which `<image>` stands for each image, as in the data.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from whet.envs.protocol import Message

IMAGE = "<image>"
LARGEST = 1e6  # size of a reward; those of an episode are added up, and advantages square the sums
_LONGEST_END = 200  # characters of the reason in info["end"]
_SHAPE = "observation, reward, done, info"
_OF_GYMNASIUM = (
    ", as environments of gymnasium do: return observation, reward, terminated or truncated, info; one that gymnasium "
    "has registered is played as it is, with worker.rollout.env=gymnasium:NAME"
)
_KINDS = 'text, chat messages, a PIL image or {"text": ..., "images": [...]}'


class BadResultError(Exception):
    """An environment returned something that cannot be used; the message says what."""


@dataclass(slots=True)
class Observed:
    """An observation: messages whose contents are text, and the images that stand in them."""

    messages: list[Message]
    images: list[Any] = field(default_factory=list)  # PIL images
    is_chat: bool = False  # True if the environment gave messages, with roles of its own


@dataclass(slots=True)
class Answer:
    """Result of a step."""

    observed: Observed | None  # None where the episode is over and nothing was said
    reward: float
    done: bool
    end: str | None  # why it ended, where the environment says so
    info: dict[str, float]  # numbers only
    message: Message | None  # the policy's turn as the environment parsed it


def read_observation(value: Any, role: str) -> Observed | None:
    """Return a checked observation; None for None."""
    observed = None if value is None else _observed(value, role)
    for message in observed.messages if observed else ():
        try:
            message["content"].encode("utf-8")
        except UnicodeEncodeError as error:
            raise BadResultError(
                "the observation holds half of a character (a lone surrogate), which is no text; decode bytes with "
                'errors="replace"'
            ) from error
    return observed


def _observed(value: Any, role: str) -> Observed:
    if isinstance(value, str):
        return Observed([{"role": role, "content": str(value)}])
    if isinstance(value, list | tuple):
        return _chat(value)
    if isinstance(value, Mapping):
        return _text_and_images(value, role)
    return Observed([{"role": role, "content": IMAGE}], [_image(value, f"the observation must be {_KINDS}")])


def read_answer(value: Any, role: str) -> Answer:
    """Check what `step` returned."""
    if not isinstance(value, tuple | list) or len(value) != 4:
        shown = f"{len(value)} values" if isinstance(value, tuple | list) else _kind(value)
        hint = _OF_GYMNASIUM if shown == "5 values" else ""
        raise BadResultError(f"step must return the four values {_SHAPE}; it returned {shown}{hint}")
    observation, reward, done, info = value
    earned = as_number(reward)
    if earned is None or abs(earned) > LARGEST:
        shown = f"{reward!r:.50}" if hasattr(type(reward), "__float__") else _kind(reward)
        raise BadResultError(f"the reward (second value of step) must be a number within ±{LARGEST:g}, not {shown}")
    is_over = as_truth(done)
    if is_over is None:
        raise BadResultError(f"done (third value of step) must be True or False, not {_kind(done)}")
    if info is not None and not isinstance(info, Mapping):
        raise BadResultError(f"info (fourth value of step) must be a dict, not {_kind(info)}")
    observed = read_observation(observation, role)
    if observed is None and not done:
        raise BadResultError(f"the observation (first value of step) is None and done is False: it must be {_KINDS}")
    info = dict(info or {})
    message, end = info.pop("message", None), info.pop("end", None)
    if message is not None and not (isinstance(message, Mapping) and isinstance(message.get("role"), str)):
        raise BadResultError(f'info["message"] must be a chat message with a role, not {_kind(message)}')
    return Answer(
        observed,
        earned,
        is_over,
        None if end is None else str(end)[:_LONGEST_END],
        numbers_of(info),
        None if message is None else dict(message),
    )


def _chat(turns: Any) -> Observed:
    observed = Observed([], is_chat=True)
    if not turns:
        raise BadResultError("the observation is an empty list of messages")
    if isinstance(turns, tuple) and len(turns) == 2 and isinstance(turns[1], Mapping) and "role" not in turns[1]:
        raise BadResultError(
            "it returned an observation and info, as gymnasium's reset does: return the observation alone"
        )
    for number, turn in enumerate(turns, start=1):
        if not isinstance(turn, Mapping) or not isinstance(turn.get("role"), str) or "content" not in turn:
            raise BadResultError(f"message {number} of the observation must be a dict with role and content")
        observed.messages.append({**turn, "content": _content(turn["content"], number, observed.images)})
    return observed


def _content(content: Any, number: int, images: list[Any]) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list | tuple):
        raise BadResultError(f"the content of message {number} must be text or a list of parts, not {_kind(content)}")
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "text" and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif kind == "image":
            images.append(_image(part.get("image"), f"an image part of message {number} must hold a PIL image"))
            texts.append(IMAGE)
        else:
            raise BadResultError(f"each part of message {number} must be of type text or image")
    return "".join(texts)


def _text_and_images(value: Mapping[Any, Any], role: str) -> Observed:
    if not value or set(value) - {"text", "images"}:
        raise BadResultError(
            f"the observation must be {_KINDS}; it is a dict with {', '.join(map(str, value)) or 'no keys'}"
        )
    text, images = value.get("text") or "", value.get("images") or []
    if not isinstance(text, str) or not isinstance(images, list | tuple):
        raise BadResultError("an observation's text must be a str and its images a list")
    shown = [_image(image, "images of an observation must be PIL images") for image in images]
    if IMAGE not in text:  # the images come first unless the text says where they stand
        text = IMAGE * len(shown) + text
    return Observed([{"role": role, "content": text}], shown)


def _image(value: Any, must: str) -> Any:
    """Return a PIL image; an array (H, W) or (H, W, 3) of bytes becomes one."""
    if type(value).__module__ == "numpy" and getattr(value, "dtype", None) == "uint8":
        from PIL import Image

        try:
            return Image.fromarray(value)
        except (TypeError, ValueError):
            raise BadResultError(f"{must}; this array has the shape {value.shape}") from None
    pil = sys.modules.get("PIL.Image")  # whoever has an image has imported it
    if pil is None or not isinstance(value, pil.Image):
        raise BadResultError(f"{must}; it is {_kind(value)}")
    return value


def as_number(value: Any) -> float | None:
    """Return a finite number as a float, also a bool and an array or tensor of one number; None for anything else."""
    if not hasattr(type(value), "__float__"):
        return None
    try:
        number = float(value.item() if getattr(value, "size", 0) == 1 else value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # an int of 400 digits, a tensor of two numbers
        return None
    return number if math.isfinite(number) else None


def as_truth(value: Any) -> bool | None:
    """Return a bool, also of numpy or torch; None for anything else."""
    if isinstance(value, bool):
        return value
    kind = str(getattr(value, "dtype", "")).removeprefix("torch.")
    return bool(value) if kind == "bool" and not getattr(value, "shape", ()) else None


def numbers_of(info: Mapping[Any, Any]) -> dict[str, float]:
    """Return the numbers among reported values."""
    numbers = ((str(name), as_number(value)) for name, value in info.items())
    return {name: number for name, number in numbers if number is not None}


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
