"""`whet.train(agent=...)`: a function of a notebook, and what cannot be a harness."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import whet

KEYS: dict[str, Any] = {
    "n": 2,
    "batch_size": 4,
    "max_prompt_length": 64,
    "max_response_length": 32,
    "quiet": True,
    "val_freq": -1,
    "worker.rollout.max_turn_tokens": 8,
    "trainer.val_before_train": False,
}


def test_a_function_that_no_file_defines_trains(tmp_path: Path, quickstart: Path) -> None:
    bonus = 0.5

    async def play(base_url: str, row: dict[str, Any]) -> float:  # the session stands in the URL
        import openai

        async with openai.AsyncOpenAI(base_url=base_url, api_key="none") as client:
            chat: Any = [{"role": "user", "content": row["note"]}]
            answer = await client.chat.completions.create(model="policy", messages=chat)
        return bonus if answer.choices[0].message.content is not None else 0.0

    rows = [{"prompt": f"Sort these digits: {i} 4 1", "note": f"{i} 3 2"} for i in range(4)]
    run = whet.train(str(quickstart / "model"), rows, agent=play, output=tmp_path / "run", steps=2, **KEYS)
    assert run.metrics["reward/overall"] == [bonus, bonus]
    assert run.config.worker.rollout.agent.endswith(".pickle:play")


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        (3, "agent: expected a function that takes base_url, api_key and row, or path.py:function, got int"),
        (" ", "agent is empty"),
        ("nowhere.py:run", "there is no such file"),
        (lambda one: 1.0, "the function must take (base_url, api_key, row), or some of them by these names"),
    ],
)
def test_what_is_no_harness(tmp_path: Path, quickstart: Path, agent: Any, said: str) -> None:
    with pytest.raises(whet.UserError) as error:
        whet.train(
            str(quickstart / "model"), [{"prompt": "2 1"}] * 4, agent=agent, output=tmp_path / "run", steps=1, **KEYS
        )
    assert said in str(error.value)
