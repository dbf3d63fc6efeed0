"""`worker.rollout.env=gymnasium:FrozenLake-v1`: environments of the gymnasium package, played in text or from images.

`worker.rollout.env_args` are the environment's own. Without `render_mode` the policy reads the environment's text
("ansi") where it has one, else its observation as numbers; with `render_mode: rgb_array` it sees the picture.
"""

from __future__ import annotations

import re
from typing import Any

from whet.config.problems import hint
from whet.envs.generated import split_settings
from whet.envs.packages import require
from whet.envs.protocol import Action, Observation, StepResult
from whet.envs.replies import answer_in
from whet.errors import UserError
from whet.types import Prompt

# Names of actions, in their order, of the environments that come with the package; `env_args.actions` gives others.
ACTIONS = {
    "FrozenLake": ("left", "down", "right", "up"),
    "FrozenLake8x8": ("left", "down", "right", "up"),
    "CliffWalking": ("up", "right", "down", "left"),
    "CliffWalkingSlippery": ("up", "right", "down", "left"),
    "Taxi": ("south", "north", "east", "west", "pickup", "dropoff"),
    "Blackjack": ("stick", "hit"),
    "CartPole": ("left", "right"),
    "MountainCar": ("left", "wait", "right"),
}
MOST_BOUNDS = 8  # numbers whose bounds are listed one by one
_COLOURED = re.compile(r"((?:\x1b\[[\d;]*m)+)([^\x1b]+)(?:\x1b\[0?m)+")
_CODE = re.compile(r"\x1b\[[\d;]*m")


class GymnasiumEnv:
    """One episode of a gymnasium environment."""

    def __init__(self, argument: str, actions: list[str] | None = None, **settings: Any) -> None:
        """`actions` names the actions of a Discrete space in their order; `settings` go to `gymnasium.make`."""
        self._env = _made(argument, settings)
        self._names = _names(self._env, actions)

    @staticmethod
    def check(argument: str, actions: list[str] | None = None, **settings: Any) -> None:
        """Raise `UserError` for an environment, setting or action space that cannot be used."""
        GymnasiumEnv(argument, actions, **settings).close()

    def reset(self, prompt: Prompt, seed: int) -> Observation:
        """Begin with the row's column `seed`, or else with the seed that the samples of a group share."""
        own = prompt.extra.get("seed")
        observation, _ = self._env.reset(seed=seed if own is None else int(own))
        return self._shown(observation)

    def step(self, action: Action) -> StepResult:
        """Play the action that the turn names; a turn without one changes nothing and hears which there are."""
        chosen = self._parsed(answer_in(action, "action"))
        if chosen is None:
            return f"That is no action. Answer with {self.described}.", 0.0, False, {"invalid": 1}
        observation, reward, terminated, truncated, info = self._env.step(chosen)
        done = bool(terminated or truncated)
        kept = {"invalid": 0}
        success = info.get("is_success", info.get("success"))
        if success is not None and done:
            kept["accuracy"] = int(bool(success))
        end = {"end": "terminated" if terminated else "truncated"} if done else {}
        return self._shown(observation), float(reward), done, {**kept, **end}

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    @property
    def described(self) -> str:
        """A phrase for the actions there are."""
        space = self._env.action_space
        if self._names:
            return f"one of {', '.join(self._names)}"
        if type(space).__name__ == "Discrete":
            return f"a number from {space.start} to {space.start + space.n - 1}"
        return _numbers(space)

    def _parsed(self, said: str) -> Any:
        """Return an action for the last name or number of a text, None where there is none."""
        import numpy as np

        space = self._env.action_space
        if type(space).__name__ == "Discrete":
            words = re.findall(r"-?\w+", said.lower())
            numbers = {str(space.start + i): space.start + i for i in range(int(space.n))}
            known = numbers | {name.lower(): space.start + i for i, name in enumerate(self._names)}
            return next((known[word] for word in reversed(words) if word in known), None)
        numbers_said = re.findall(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?", said)
        if len(numbers_said) != _size(space):
            return None
        values = np.array([float(number) for number in numbers_said]).reshape(space.shape)
        if type(space).__name__ == "Box":
            values = np.clip(values, space.low, space.high)
        chosen = values.astype(space.dtype)
        if space.dtype.kind in "iu" and (chosen != values).any():  # 0.9 is not the action 0
            return None
        return chosen if space.contains(chosen) else None

    def _shown(self, observation: Any) -> Observation:
        if self._env.render_mode == "ansi":
            return marked(str(self._env.render()))
        if self._env.render_mode == "rgb_array":
            return self._env.render()
        if (
            getattr(observation, "dtype", None) == "uint8"
            and observation.ndim == 3
            and observation.shape[2] in (1, 3, 4)
        ):
            return observation[..., 0] if observation.shape[2] == 1 else observation
        return written(observation)


def marked(text: str) -> str:
    """Return a text without colours: [x] stood on a coloured ground, *x* was bold, (x) had a colour."""

    def mark(found: re.Match[str]) -> str:
        codes = {int(code) for code in re.findall(r"\d+", found[1])}
        if codes & {*range(40, 48), *range(100, 108)}:
            return f"[{found[2]}]"
        return f"*{found[2]}*" if 1 in codes else f"({found[2]})"

    return _CODE.sub("", _COLOURED.sub(mark, text)).strip("\n")


def written(observation: Any) -> str:
    """Return an observation as text: numbers with four digits, lists in brackets, a line for each entry of a dict."""
    if isinstance(observation, dict):
        return "\n".join(f"{key}: {written(value)}" for key, value in observation.items())
    if isinstance(observation, tuple):
        return f"({', '.join(map(written, observation))})"
    if hasattr(observation, "tolist"):
        return written(observation.tolist())
    if isinstance(observation, list):
        return f"[{', '.join(map(written, observation))}]"
    return f"{observation:.4g}" if isinstance(observation, float) else str(observation)


def gymnasium_rows(argument: str, numbers: range) -> list[dict[str, Any]]:
    """Return rows that say which actions there are, with a seed each."""
    env = GymnasiumEnv(argument)
    prompt = f"Play {split_settings(argument)[0]}. In each turn, answer with {env.described}."
    env.close()
    return [{"prompt": prompt, "seed": number} for number in numbers]


def _made(argument: str, options: dict[str, Any]) -> Any:
    gymnasium = require("gymnasium", "gymnasium")
    name, settings = split_settings(argument)
    settings |= options
    try:
        if "render_mode" not in settings:
            plain = gymnasium.make(name, **settings)
            if "ansi" not in (plain.metadata.get("render_modes") or ()):
                return plain
            plain.close()
            settings["render_mode"] = "ansi"
        return gymnasium.make(name, **settings)
    except Exception as error:  # of the name, of missing packages, of the environment's own constructor
        known = [each for each in gymnasium.registry if not each.startswith("GymV")]
        close = hint(name, known) if name not in gymnasium.registry else ""
        raise UserError(f"gymnasium cannot make {name!r}: {type(error).__name__}: {error}{close}") from error


def _names(env: Any, given: list[str] | None) -> tuple[str, ...]:
    space = env.action_space
    kind = type(space).__name__
    if kind not in ("Discrete", "Box", "MultiDiscrete", "MultiBinary"):
        env.close()
        raise UserError(f"actions of the space {space} cannot be written in a turn; wrap it, or write an environment")
    names = tuple(given) if given else ACTIONS.get(env.spec.name if env.spec else "", ())
    if given and (kind != "Discrete" or len(names) != space.n):
        env.close()
        raise UserError(f"worker.rollout.env_args.actions has {len(names)} names, and the actions are {space}")
    return names if kind == "Discrete" and len(names) == space.n else ()


def _numbers(space: Any) -> str:
    """Return a phrase for the numbers that make an action, with their bounds where all share them."""
    import numpy as np

    size = _size(space)
    whole = "whole " if space.dtype.kind in "iu" else ""
    phrase = f"{size} {whole}numbers" if size > 1 else f"a {whole}number"
    if type(space).__name__ == "MultiBinary":
        return f"{phrase}, each 0 or 1"
    low = space.low if type(space).__name__ == "Box" else space.start
    high = space.high if type(space).__name__ == "Box" else space.start + space.nvec - 1
    bounds = list(dict.fromkeys(f"{a:g} to {b:g}" for a, b in zip(np.ravel(low), np.ravel(high), strict=True)))
    if len(bounds) == 1:
        return phrase if "inf" in bounds[0] else f"{phrase} from {bounds[0]}"
    each = ", ".join(f"{a:g} to {b:g}" for a, b in zip(np.ravel(low), np.ravel(high), strict=True))
    return f"{phrase}, from {each}" if size <= MOST_BOUNDS else phrase


def _size(space: Any) -> int:
    import numpy as np

    return int(np.prod(space.shape))


ENV = GymnasiumEnv
ROWS = gymnasium_rows
