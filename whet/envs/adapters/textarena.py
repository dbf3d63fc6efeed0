"""`worker.rollout.env=textarena:TicTacToe-v0`: games of the TextArena package, alone or against scripted opponents.

The policy has one seat; `worker.rollout.env_args.opponent` plays the others: "random" picks one of the moves that the
game lists, `path.py:NAME` or `package.module:NAME` is a function or a class of your own. Other settings are the game's.
"""

from __future__ import annotations

import copy
import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from whet.config.problems import hint
from whet.envs.generated import split_settings
from whet.envs.loading import ARGS_KEY, find_object
from whet.envs.packages import require
from whet.envs.protocol import Action, StepResult
from whet.envs.replies import answer_in
from whet.errors import UserError
from whet.types import Prompt

MOST_PLAYERS = 15
ATTEMPTS = 10  # to get to the policy's first turn
TRIES = 40  # of a random opponent to find a move
_LOCK = threading.Lock()  # the package draws from the `random` of the process, which episodes must not share
_MOVE = re.compile(r"\[[^\[\]\n]+\]")
_NUMBER = re.compile(r"\d+")
_PLACE = re.compile(r"<[^<>]+>|\b[A-Z]\b")  # of a number, in the form of a move: [play X], [<number>]

Opponent = Callable[[str], str]  # from what its player reads to a move
Accepts = Callable[[str], bool]  # True for a move that the game would take from the player whose turn it is


class TextArenaEnv:
    """One game; the policy reads what its player reads and earns the player's reward when the game ends."""

    def __init__(
        self,
        argument: str,
        opponent: str = "random",
        player: int | None = None,
        players: int | None = None,
        **settings: Any,
    ) -> None:
        """`player` is the policy's seat (a row's column of that name comes first); `players` how many there are."""
        self._seat, self._wanted = player, players
        self._opponent = _opponent(opponent)
        self._state: Any = None  # of `random`, for this game alone
        self._game = _made(argument, settings)

    @staticmethod
    def check(argument: str, opponent: str = "random", **options: Any) -> None:
        """Raise `UserError` for a game, seat, setting or opponent that cannot be used."""
        env = TextArenaEnv(argument, opponent, **options)
        try:
            env._begin(0)
        except UserError:
            raise
        except Exception as error:  # of words to download, of keys for a judge, of the number of players
            raise UserError(f"TextArena cannot begin {argument}: {type(error).__name__}: {_first(error)}") from error
        if env._seat is not None and not 0 <= env._seat < env.players:
            raise UserError(f"{ARGS_KEY}.player={env._seat}: the game has the players 0 to {env.players - 1}")

    def reset(self, prompt: Prompt, seed: int) -> str:
        """Begin with the row's column `seed`, or else the seed of the group; play up to the policy's first turn."""
        own, seat = prompt.extra.get("seed"), prompt.extra.get("player")
        chosen = seed if own is None else int(own)
        self._begin(chosen)
        if seat is not None:
            self._seat = int(seat)
        elif self._seat is None:
            self._seat = chosen % self.players  # every seat as often as the others
        if not 0 <= self._seat < self.players:
            raise ValueError(f"there is no player {self._seat}: the game has {self.players}")
        for attempt in range(ATTEMPTS):  # an opponent may lose by its first move
            rng = Random(f"{chosen} {attempt}")
            self._others = {each: self._opponent(rng, self._accepts) for each in range(self.players)}
            if not self._play_others():
                return self._news()
            self._begin(chosen)
        raise RuntimeError(f"the opponent ended {ATTEMPTS} games before the policy's first turn")

    def step(self, action: Action) -> StepResult:
        """Make the policy's move and those of the others, up to the policy's next turn or the end."""
        done = self._move(answer_in(action, "action")) or self._play_others()
        if not done:
            return self._news(), 0.0, False, {}
        rewards, infos = self._game.close()
        mine = float(rewards[self._seat])
        best = max((float(reward) for seat, reward in rewards.items() if seat != self._seat), default=None)
        won = mine >= 1 if best is None else mine > best
        if best is None:
            end = "solved" if won else "over"
        else:
            end = "won" if won else "draw" if mine == best else "lost"
        invalid = {seat: int(bool(info.get("invalid_move"))) for seat, info in infos.items()}
        others = sum(value for seat, value in invalid.items() if seat != self._seat)
        info = {"accuracy": int(won), "invalid": invalid.get(self._seat, 0), "opponent_invalid": int(others > 0)}
        return None, mine, True, {**info, "end": end}

    def _begin(self, seed: int) -> None:
        wanted = [self._wanted] if self._wanted is not None else range(1, MOST_PLAYERS + 1)
        refused: Exception | None = None
        for self.players in wanted:
            try:
                with self._drawing():
                    self._game.reset(num_players=self.players, seed=seed)
                return
            except (AssertionError, ValueError) as error:  # how games refuse a number of players
                refused = refused or error
                self._state = None
        raise UserError(f"the game refuses {self._wanted or f'1 to {MOST_PLAYERS}'} players: {refused}") from refused

    def _play_others(self) -> bool:
        """Let the others move until it is the policy's turn; True if the game has ended."""
        while True:
            with self._drawing():
                player, news = self._game.get_observation()
            if player == self._seat:
                self._unread = news
                return False
            move = self._others[player](_text(player, news))
            if not isinstance(move, str):
                raise TypeError(f"the opponent returned {type(move).__name__}; a move is text")
            if self._move(move):
                return True

    def _move(self, text: str) -> bool:
        with self._drawing():
            done, _ = self._game.step(action=text)
        return bool(done)

    def _accepts(self, text: str) -> bool:
        """Try a move on a copy of the game."""
        with self._drawing():
            before, copied = random.getstate(), copy.deepcopy(self._game)
            player, errors = copied.state.current_player_id, getattr(copied.state, "error_count", 0)
            copied.step(action=text)
            random.setstate(before)
        refused = getattr(copied.state, "error_count", 0) > errors
        return not refused and not copied.state.game_info[player].get("invalid_move")

    def _news(self) -> str:
        return _text(self._seat, self._unread) or "It is your turn."

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        """Lend this game's state to the `random` of the process, and put back what was there."""
        with _LOCK:
            outside = random.getstate()
            if self._state is not None:
                random.setstate(self._state)
            try:
                yield
            finally:
                self._state = random.getstate()
                random.setstate(outside)


class RandomOpponent:
    """Plays at random: one of the moves that the game has listed in brackets, or one with other numbers in it."""

    def __init__(self, rng: Random, accepts: Accepts) -> None:
        self._rng, self._accepts = rng, accepts
        self._examples: list[str] = []  # moves that any text has shown

    def __call__(self, news: str) -> str:
        lines = [list(dict.fromkeys(_MOVE.findall(line))) for line in news.splitlines()]
        shown = [form for line in lines for move in line for form in (move, _PLACE.sub("0", move))]
        self._examples = list(dict.fromkeys([*self._examples, *shown]))
        listed: list[str] = next((line for line in reversed(lines) if len(line) > 1), [])
        for move in self._rng.sample(listed, len(listed)):
            if self._accepts(move):
                return move
        move = "[pass]"
        for _ in range(TRIES if self._examples else 0):
            move = _NUMBER.sub(lambda _: str(self._rng.randrange(10)), self._rng.choice(self._examples))
            if self._accepts(move):
                return move
        return move


def _opponent(name: str) -> Callable[[Random, Accepts], Opponent]:
    """Return what makes an opponent for one game."""
    if name == "random":
        return RandomOpponent
    if not isinstance(name, str) or ":" not in name:
        raise UserError(f"{ARGS_KEY}.opponent={name}: expected random, path.py:NAME or package.module:NAME")
    found = find_object(f"{ARGS_KEY}.opponent", name)
    if not callable(found):
        raise UserError(f"{ARGS_KEY}.opponent={name}: expected a function or a class, found a {type(found).__name__}")
    return lambda *_: found() if isinstance(found, type) else found


def _text(reader: int | None, news: Any) -> str:
    """Return what a player reads, without its own moves."""
    if isinstance(news, str):
        return news.strip()
    said = [f"Player {who}: {text}" if who >= 0 else str(text) for who, text, *_ in news if who != reader]
    return "\n".join(text.strip() for text in said)


def textarena_rows(argument: str, numbers: range) -> list[dict[str, Any]]:
    """Return rows with a seed each; what the game says about itself comes with its first observation."""
    TextArenaEnv.check(argument)
    return [{"prompt": f"Play {split_settings(argument)[0]}.", "seed": number} for number in numbers]


def _made(argument: str, options: dict[str, Any]) -> Any:
    textarena = require("textarena", "textarena")
    from textarena.envs.registration import ENV_REGISTRY

    name, settings = split_settings(argument)
    # Variants "-raw" tell a player its news; the others repeat all that has been said in every observation.
    raw = f"{name.removesuffix('-raw').removesuffix('-train')}-raw"
    if raw not in ENV_REGISTRY:
        known = [each.removesuffix("-raw") for each in ENV_REGISTRY if each.endswith("-raw")]
        close = hint(name, known)
        listed = "" if close else f"; some of its {len(known)} games are {', '.join(known[:: len(known) // 8])}"
        raise UserError(f"TextArena has no game {name!r}{close}{listed}")
    try:
        return textarena.make(raw, **settings, **options)
    except Exception as error:  # of settings, of missing packages, of syntax that a Python does not have
        raise UserError(f"TextArena cannot make {name}: {type(error).__name__}: {_first(error)}") from error


def _first(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if any(map(str.isalpha, line))), "")[:200]


ENV = TextArenaEnv
ROWS = textarena_rows
