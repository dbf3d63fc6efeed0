# %% [markdown]
# # A model that sorts digits from the largest to the smallest
# The rows, the reward and the settings are Python objects here; `config.yaml` says the same for the command line.

# %%
import json
from pathlib import Path

import whet

rows = [json.loads(line) for line in Path("train.jsonl").read_text().splitlines()]
test = [json.loads(line) for line in Path("test.jsonl").read_text().splitlines()]
rows[0]


# %%
def reward(response, answer):
    """Pay 0.1 for the form and 0.9 for the right digits."""
    form = response.strip().startswith("Answer: ")
    right = response.strip() == f"Answer: {answer}"
    return {"overall": 0.1 * form + 0.9 * right, "accuracy": float(right)}


reward(f"Answer: {rows[0]['answer']}", rows[0]["answer"])

# %%
run = whet.train(
    model="whet/quickstart",
    data=rows,
    val_data=test,
    reward=reward,
    template='{{ content | trim }}\nBegin with "Answer:"',
    steps=40,
    batch_size=32,
    n=8,
    lr=1e-3,
    kl=0,
    max_prompt_length=32,
    max_response_length=16,
    overrides={"trainer.val_freq": 10, "trainer.val_before_train": True, "trainer.quiet": True},
)

# %%
run.plot()

# %% [markdown]
# Replies of the last validation, and of the trained model to a prompt of your own:

# %%
run.samples(split="val")

# %%
run.generate(["Sort these digits: 3 9 1 7 5"], n=4)
