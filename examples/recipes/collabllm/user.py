"""Simulated users: the policy talks with one until the task is done, and is paid for the whole conversation.

CollabLLM (Wu et al., 2025) rewards a turn by where the conversation ends: R = success − λ·min(tokens/budget, 1), and a
judge's score for interactivity where there is one (`worker.reward.judge`). Whole conversations are sampled, n for each
task, and every turn of one gets its advantage: an estimate of the multiturn-aware reward from one future each.
"""

import json
import math
import os
import re
import urllib.request

DONE = "[[DONE]]"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
ROLE = """You play a user who talks with an assistant. What you want, and what you know: {intent}
Do not say all of it at once; answer what you are asked, briefly, in your own words, and correct misunderstandings.
When the assistant has given you what you want, or cannot, answer with nothing but {done}."""


class Conversation:
    """A conversation with a user whom a language model plays; rows have `prompt`, `intent` and `answer`.

    `url` is an endpoint of chat completions, its key in $USER_KEY. Success is that the right answer is the last
    number of the assistant's last turn: a list of guesses, or a number that merely contains it, is none.
    """

    def __init__(
        self, url: str, model: str, turns: int = 8, penalty: float = 0.5, budget: int = 2500, timeout: float = 60.0
    ) -> None:
        self.url, self.model, self.turns, self.timeout = url, model, turns, timeout
        self.penalty, self.budget = penalty, budget
        self.tokens = self.taken = 0

    def reset(self, prompt):
        """Take the task from the row; the row's prompt is what the user says first."""
        self.answer = float(str(prompt.answer).replace(",", ""))
        role = ROLE.format(intent=prompt.extra["intent"], done=DONE)
        first = prompt.extra["prompt"]
        self.messages = [{"role": "system", "content": role}, {"role": "assistant", "content": str(first)}]

    def step(self, action):
        """Let the user answer; the reward comes with the last turn."""
        self.tokens += len(action.ids)
        self.taken += 1
        # to the model that plays the user, the assistant is who speaks to it
        self.messages.append({"role": "user", "content": str(action)})
        said = self.reply()
        self.messages.append({"role": "assistant", "content": said})
        if DONE not in said and self.taken < self.turns:
            return said, 0.0, False, {}
        numbers = NUMBER.findall(str(action).replace(",", ""))
        success = float(bool(numbers) and float(numbers[-1]) == self.answer)
        cost = self.penalty * min(self.tokens / self.budget, 1.0)
        end = "done" if DONE in said else "out of turns"
        return None, success - cost, True, {"end": end, "accuracy": success, "tokens_cost": cost}

    def reply(self) -> str:
        """Ask the model that plays the user."""
        body = {"model": self.model, "messages": self.messages, "temperature": 0.7, "max_tokens": 512}
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ.get('USER_KEY', 'none')}"}
        request = urllib.request.Request(f"{self.url}/chat/completions", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=self.timeout) as answer:
            return json.load(answer)["choices"][0]["message"]["content"].strip()


class NumberInMind:
    """A user without a model: it has a number in mind and says "higher" or "lower" to every proposal.

    A conversation that ends with the number succeeds; every turn costs the user's time. Proposals that narrow down what
    the user may mean earn a little, as CollabLLM's helpfulness does.
    """

    def __init__(self, high: int = 15, turns: int = 4, penalty: float = 0.2) -> None:
        self.low, self.high, self.turns, self.penalty = 1, high, turns, penalty
        self.scale, self.taken = math.log(high), 0

    def reset(self, prompt):
        """Take what the user means from the row."""
        self.meant = int(prompt.extra["secret"])

    def step(self, action):
        """Answer a proposal."""
        self.taken += 1
        cost = self.penalty / self.turns
        found = re.fullmatch(r"\s*(\d{1,4})\s*", action)
        if found is None:
            return None, -1.0, True, {"end": "misunderstood", "accuracy": 0}
        proposed, before = int(found[1]), self.high - self.low + 1
        if proposed == self.meant:
            return None, 1.0 - cost, True, {"end": "done", "accuracy": 1, "turns_used": self.taken}
        if proposed < self.meant:
            self.low = max(self.low, proposed + 1)
        else:
            self.high = min(self.high, proposed - 1)
        gained = 0.25 * math.log(before / (self.high - self.low + 1)) / self.scale
        if self.taken == self.turns:
            return None, gained - cost, True, {"end": "out of turns", "accuracy": 0}
        return "higher" if proposed < self.meant else "lower", gained - cost, False, {}
