"""What tests of the Python API share: small settings, cells of a notebook, a closure as a reward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

TEMPLATE = '{{ content | trim }}\nBegin with "Answer:"'
SMALL = {
    "prompt_key": "problem",
    "template": TEMPLATE,
    "batch_size": 8,
    "n": 4,
    "lr": 1e-3,
    "kl": 0,
    "max_prompt_length": 32,
    "max_response_length": 16,
}
# A cell of a notebook: its functions have a file name, but there is no such file.
CELL = """
import whet

@whet.advantage("about_mean")
def about_mean(signals, config):
    scores_B = signals.rewards_BT.sum(dim=1)
    advantages_BT = (scores_B - scores_B.mean())[:, None] * signals.mask_BT
    CALLS.append(len(scores_B))
    return advantages_BT, advantages_BT

@whet.policy_loss("plain")
def plain(inputs, config, aggregate):
    loss_BT = -inputs.advantages_BT * inputs.log_ratio.exp()
    return aggregate(inputs.weighted(loss_BT), inputs.mask_BT), {}
"""


def run_cell(text: str, number: int = 1, variables: dict[str, Any] | None = None) -> dict[str, Any]:
    """Execute text as ipykernel executes a cell; returns the variables of the notebook."""
    variables = {"__name__": "__main__", "CALLS": []} | (variables or {})
    exec(compile(text, f"/tmp/ipykernel_1/{number}.py", "exec"), variables)
    return variables


def scorer(weight: float) -> Callable[[str, str], dict[str, float]]:
    """Return a closure, which only pickling by value can send."""

    def score(response: str, answer: str) -> dict[str, float]:
        right = float(response.strip() == f"Answer: {answer}")
        return {"overall": weight * right, "accuracy": right}

    return score
