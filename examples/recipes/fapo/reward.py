r"""FAPO's reward: a right answer that was reached by a flawed argument earns less (Ding et al., 2025).

R = 1 for a right answer, −1 for a wrong one, and −λ on top where the answer is right and the argument is not. With λ
= 1 a flawed success is worth half of the way from a failure to a success: it still helps while the policy fails
mostly, and is pushed down once sound successes are common. Only right answers are examined, so the model that
examines them has little to do. It is asked as the authors ask theirs: for the first step with an error, in a box.
"""

import json
import os
import re
import urllib.request

from whet.rewards.scorers.math_dapo import score as math_score

VERDICT = re.compile(r"\\boxed\{\s*(-?\d+)\s*\}")
ASK = r"""Here are a math problem, its right answer, and a solution of several steps that ends with that answer.

[Math Problem]

{problem}

[Ground Truth]

{truth}

[AI Solution]

{response}

Review the solution step by step. Find the first step that contains an error, and give its index; if no step does, give
the index -1. Reason step by step, and put the index in \boxed{{}}."""


def compute_score(
    reward_input: dict, lam: float = 1.0, url: str | None = None, model: str = "genrm", timeout: float = 280.0
) -> dict:
    """Score a solution of a math problem; without `url`, an endpoint of chat completions, a line that sorts digits."""
    response, truth = reward_input["response"].strip(), str(reward_input["ground_truth"]).strip()
    if url:
        right = math_score(response, truth)["accuracy"] == 1.0
        flawed = right and not argument_is_sound(reward_input, url, model, timeout)
    else:
        working, _, answer = response.partition("=")
        right = answer.strip() == truth
        flawed = right and not working_is_sound(reward_input["problem"], working)
    reward = (1.0 if right else -1.0) - lam * flawed
    return {"overall": reward, "accuracy": float(right), "flawed": float(flawed), "sound": float(right and not flawed)}


def argument_is_sound(reward_input: dict, url: str, model: str, timeout: float) -> bool:
    """Ask a generative reward model for the first wrong step; an answer without an index counts as sound."""
    content = ASK.format(
        problem=reward_input.get("problem") or reward_input["prompt"],
        truth=reward_input["ground_truth"],
        response=reward_input["response"],
    )
    body = {"model": model, "messages": [{"role": "user", "content": content}], "max_tokens": 16384}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ.get('GENRM_KEY', 'none')}"}
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=timeout) as reply:
        said = json.load(reply)["choices"][0]["message"]["content"] or ""
    verdicts = VERDICT.findall(said)
    return not verdicts or int(verdicts[-1]) == -1


def working_is_sound(problem: str, working: str) -> bool:
    """Return True if "5 2 9" of "5 2 9 = 2 5 9" are the digits of "Sort these digits: 5 2 9", in the order given."""
    return working.split() == problem.partition(":")[2].split()
