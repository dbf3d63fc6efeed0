"""TextArena: games for one player and for several, opponents, randomness of their own, names that do not exist."""

from __future__ import annotations

import random
import re
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from whet.data.files import read_rows
from whet.envs.adapters.textarena import RandomOpponent
from whet.envs.loading import env_factory
from whet.envs.protocol import Action
from whet.errors import UserError
from whet.types import Prompt

pytestmark = pytest.mark.skipif(find_spec("textarena") is None, reason="needs whet[textarena]")
PROMPT = Prompt("x", [], "")
OPPONENT = """
def lowest(news):
    return "[" + news.rpartition("Available Moves: ")[2][2] + "]"

class Silent:
    def __call__(self, news):
        return None
"""


@pytest.fixture
def opponents(tmp_path: Path) -> Path:
    path = tmp_path / "opponents.py"
    path.write_text(OPPONENT)
    return path


def moves(news: str) -> list[str]:
    """Return the moves of tic-tac-toe that the last board leaves."""
    return re.findall(r"\[\d\]", news.rpartition("Available Moves")[2])


def played(seed: int) -> tuple[list[str], float, dict[str, Any]]:
    """Play a game by the last of the moves that there are; return what was read, the reward and the info."""
    env: Any = env_factory("textarena:TicTacToe-v0")()
    news = [env.reset(PROMPT, seed)]
    while True:
        observation, reward, done, info = env.step(Action(f"<think>[0]</think>I take {moves(news[-1])[-1]}"))
        if done:
            return news, reward, info
        news.append(observation)


def test_a_game_against_an_opponent_of_ones_own_is_won(opponents: Path) -> None:
    options = {"opponent": f"{opponents}:lowest", "player": 1}
    env: Any = env_factory("textarena:TicTacToe-v0", options=options)()
    first = env.reset(PROMPT, 1)
    assert "You are Player 1" in first  # the rules, once, and the first move of the other
    assert "Player 0: [0]" in first
    news, reward, done, info = env.step(Action("the middle"))
    assert "invalid move" in news
    assert (reward, done, info) == (0.0, False, {})
    for move in ("[4]", "<action>[2]</action>"):
        news, _, done, _ = env.step(Action(move))
        assert not done
        assert "You are Player" not in news
        assert f"Player 1: {move}" not in news  # its own turn stands in the conversation already
    _, reward, done, info = env.step(Action("[6]"))
    assert (reward, done) == (1.0, True)
    assert info == {"accuracy": 1, "invalid": 0, "opponent_invalid": 0, "end": "won"}


def test_two_moves_that_cannot_be_lose() -> None:
    env: Any = env_factory("textarena:TicTacToe-v0")()
    env.reset(PROMPT, 1)
    assert not env.step(Action("?"))[2]
    _, reward, done, info = env.step(Action("?"))
    assert (reward, done, info["end"], info["invalid"], info["accuracy"]) == (-1.0, True, "lost", 1, 0)


def test_games_at_the_same_time_are_those_of_their_seeds() -> None:
    random.seed(5)
    before = random.getstate()
    alone = [played(seed) for seed in range(12)]
    assert random.getstate() == before  # the package seeds the generator of the process, which is put back
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(played, range(12))) == alone
    assert len({news[0] for news, _, _ in alone}) > 2
    assert {info["end"] for *_, info in alone} <= {"won", "lost", "draw"}
    assert all(info["invalid"] == info["opponent_invalid"] == 0 for *_, info in alone)


def test_a_game_for_one_player() -> None:
    env: Any = env_factory("textarena:GuessTheNumber-v0")()
    news, low, high = env.reset(PROMPT, 4), 1, 20
    assert "between 1 and 20" in news
    done = False
    while not done:
        guess = (low + high) // 2
        news, reward, done, info = env.step(Action(f"[{guess}]"))
        low, high = (guess + 1, high) if news and "higher" in news else (low, guess - 1)
    assert (reward, info["end"], info["accuracy"]) == (1.0, "solved", 1)


def test_an_opponent_that_returns_no_text_is_named(opponents: Path) -> None:
    env: Any = env_factory("textarena:TicTacToe-v0", options={"opponent": f"{opponents}:Silent", "player": 1})()
    with pytest.raises(TypeError, match="the opponent returned NoneType"):
        env.reset(PROMPT, 1)


def test_rows_have_seeds() -> None:
    rows = read_rows("textarena:TicTacToe-v0@3")
    assert rows == [{"prompt": "Play TicTacToe-v0.", "seed": number} for number in (1, 2, 3)]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("textarena:TikTakToe-v0", {}, "did you mean TicTacToe-v0"),
        ("textarena", {}, "TextArena has no game ''"),
        ("textarena:TicTacToe-v0", {"size": 4}, "cannot make TicTacToe-v0: TypeError"),
        ("textarena:TicTacToe-v0", {"player": 2}, "the game has the players 0 to 1"),
        ("textarena:TicTacToe-v0", {"players": 3}, "the game refuses 3 players"),
        ("textarena:TicTacToe-v0", {"opponent": "best"}, "expected random, path.py:NAME"),
        ("textarena:TicTacToe-v0", {"opponent": "none.py:play"}, "worker.rollout.env_args.opponent"),
    ],
)
def test_what_cannot_be_played_is_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)) as refused:
        env_factory(name, options=options)
    assert "worker.rollout.env" in str(refused.value)


@pytest.mark.parametrize("form", ["[play X]", "[attack M O]", "[<number>]"])
def test_a_random_opponent_puts_numbers_into_the_form_of_a_move(form: str) -> None:
    wanted = re.compile(r"\[[a-z ]*\d( \d)?\]")
    opponent = RandomOpponent(random.Random(1), lambda move: wanted.fullmatch(move) is not None)
    assert wanted.fullmatch(opponent(f"Answer with {form}."))
