"""FAPO's reward: a right answer that was reached by a flawed argument earns less (Ding et al., 2025).

R = 1 for a right answer, −1 for a wrong one, and −λ on top where the answer is right and the argument is not. With λ
= 1 a flawed success is worth half of the way from a failure to a success: it still helps while the policy fails
mostly, and is pushed down once sound successes are common. Only right answers are examined, so the model that
examines them has little to do.
"""

import json
import os
import re
import urllib.request

ANSWER = re.compile(r"(?:Answer:|=)\s*([^\n]+?)\s*$")
VERDICT = re.compile(r"\b(SOUND|FLAWED)\b")
ASK = """Here is a problem and a solution whose final answer is right. Read the solution step by step. If a step is
wrong, skips what it needed to show, or guesses, the solution is flawed. End with one word: SOUND or FLAWED.

Problem: {problem}

Solution: {response}"""


def compute_score(reward_input: dict, lam: float = 1.0, url: str | None = None, model: str = "genrm") -> dict:
    """Score one response; `url` is an endpoint of chat completions, without one `working_is_sound` examines."""
    response, truth = reward_input["response"].strip(), str(reward_input["ground_truth"]).strip()
    found = ANSWER.search(response)
    right = found is not None and found[1].strip().rstrip(".") == truth
    flawed = right and not (
        asked(reward_input, url, model) if url else working_is_sound(reward_input["problem"], response)
    )
    reward = (1.0 if right else -1.0) - lam * flawed
    return {"overall": reward, "accuracy": float(right), "flawed": float(flawed), "sound": float(right and not flawed)}


def asked(reward_input: dict, url: str, model: str) -> bool:
    """Ask a generative reward model whether the argument is sound; an answer without a verdict counts as sound."""
    content = ASK.format(problem=reward_input.get("problem", ""), response=reward_input["response"])
    body = {"model": model, "messages": [{"role": "user", "content": content}], "temperature": 0.0, "max_tokens": 2048}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ.get('GENRM_KEY', 'none')}"}
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=25) as reply:
        said = json.load(reply)["choices"][0]["message"]["content"]
    verdicts = VERDICT.findall(said)
    return not verdicts or verdicts[-1] == "SOUND"


def working_is_sound(problem: str, response: str) -> bool:
    """Return True if "5 2 9 = 2 5 9" begins with the digits of "Sort these digits: 5 2 9", in the order given."""
    return response.partition("=")[0].split() == problem.partition(":")[2].split()
