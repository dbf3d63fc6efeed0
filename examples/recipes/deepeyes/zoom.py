"""Zoom and crop as actions: parts of the row's image are shown again, larger (DeepEyes; Zheng et al., 2025).

The policy writes {"name": "zoom", "arguments": {"box": [x1, y1, x2, y2]}} between <tool_call> tags, or zoom(x1, y1, x2,
y2), in pixels of the image as it sees it; any other turn is its answer. The reward is for the answer, and a bonus where
it is right after a look. Parts are cut out of the row's column `original` (a path, or bytes), which may have details
that are lost in what the policy sees; without such a column, out of the latter.
"""

import json
import re

from whet.data.images import decode, open_image

CALL = re.compile(r"<tool_call>(.*?)</tool_call>|\bzoom(\(.*?\))", re.DOTALL)
ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
SCHEMA = {
    "type": "function",
    "function": {
        "name": "zoom",
        "description": "Look at a part of the image again, larger.",
        "parameters": {
            "type": "object",
            "properties": {"box": {"type": "array", "items": {"type": "number"}, "description": "x1, y1, x2, y2"}},
            "required": ["box"],
        },
    },
}


class Zoom:
    """One image, looked at again as often as `looks` allows."""

    tools = [SCHEMA]  # noqa: RUF012, given to the chat template

    def __init__(
        self, looks: int = 3, smallest: int = 28, enlarged: int = 448, bonus: float = 0.5, column: str = "original"
    ) -> None:
        self.left, self.smallest, self.enlarged, self.bonus, self.column = looks, smallest, enlarged, bonus, column
        self.looked = 0

    def reset(self, prompt):
        """Take image and answer from the row."""
        if prompt.media is None or not prompt.media.images:
            raise ValueError("zooming needs a row with an image")
        self.seen, self.answer = prompt.media.images[0].size, str(prompt.answer).strip().lower()
        own = prompt.extra.get(self.column)
        self.image = decode(open_image(own, None)) if own else prompt.media.images[0]

    def step(self, action):
        """Return the part of the image that a call names; score any other turn."""
        call = CALL.search(action)
        if call is None:
            found = ANSWER.search(action)
            said = (found[1] if found else action).strip().removeprefix("Answer:").strip().lower()
            right = float(said == self.answer)
            reward = right + self.bonus * right * (self.looked > 0)
            return None, reward, True, {"end": "answered", "accuracy": right, "looks": self.looked}
        if self.left == 0:
            return None, 0.0, True, {"end": "too many looks", "accuracy": 0, "looks": self.looked}
        self.left -= 1
        try:
            part = self.crop(json.loads(call[1])["arguments"]["box"] if call[1] else call[2].strip("()").split(","))
        except (ValueError, TypeError, KeyError) as error:
            return f"Error: {error}", 0.0, False, {}
        self.looked += 1
        return {"text": "This is that part of the image:<image>", "images": [part]}, 0.0, False, {}

    def crop(self, box):
        """Return the part of the image in a box, enlarged so that its longer side has `enlarged` pixels."""
        x1, y1, x2, y2 = (float(each) for each in box)
        width, height = self.seen
        x1, y1, x2, y2 = max(x1, 0), max(y1, 0), min(x2, width), min(y2, height)
        if not (x2 - x1 >= 1 and y2 - y1 >= 1):
            raise ValueError(
                f"the box must lie in the image, which is {width} by {height} pixels, with x1 < x2 and y1 < y2"
            )
        wide, high = (own / shown for own, shown in zip(self.image.size, self.seen))
        x1, y1 = int(x1 * wide), int(y1 * high)
        part = self.image.crop((x1, y1, max(int(x2 * wide), x1 + 1), max(int(y2 * high), y1 + 1)))
        scale = self.enlarged / max(part.size)
        return part.resize([max(self.smallest, round(side * scale)) for side in part.size])
