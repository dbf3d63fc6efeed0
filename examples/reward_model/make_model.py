"""Train a small reward model on pairs of answers to the quickstart's problems: `python make_model.py FOLDER`.

Bradley and Terry's loss: of two answers to a problem, the better one should score more. The model has one output at the
last token and is saved as any AutoModelForSequenceClassification.
"""

from __future__ import annotations

import json
import random
import sys

import torch
from torch.nn.functional import logsigmoid
from transformers import AutoTokenizer, LlamaConfig, LlamaForSequenceClassification

from whet.assets import builtin

STEPS, PAIRS, RATE = 400, 64, 2e-3


def spoiled(digits: list[str], rng: random.Random) -> str:
    """Return a worse answer: out of order, with a digit lost or repeated, or without its first word."""
    kind, wrong = rng.randrange(4), list(digits)
    if kind == 0:
        while wrong == digits:
            rng.shuffle(wrong)
    elif kind == 1:
        wrong.pop(rng.randrange(len(wrong)))
    elif kind == 2:
        wrong.insert(rng.randrange(len(wrong)), rng.choice(wrong))
    else:
        return " ".join(wrong)
    return "Answer: " + " ".join(wrong)


def main(folder: str, steps: int = STEPS) -> None:
    """Make pairs, train, and save model and tokenizer."""
    data = builtin("whet/quickstart", print)
    tokenizer = AutoTokenizer.from_pretrained(data / "model")
    rows = [json.loads(line) for line in (data / "train.jsonl").read_text().splitlines()]
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=128,
        num_labels=1,
        pad_token_id=tokenizer.pad_token_id,
    )
    model, rng = LlamaForSequenceClassification(config), random.Random(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)

    def encoded(row: dict, answer: str) -> torch.Tensor:
        turns = [{"role": "user", "content": row["problem"] + '\nBegin with "Answer:"'}]
        prompt = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        ids = tokenizer(prompt + answer, add_special_tokens=False)["input_ids"]
        return torch.tensor([*ids, tokenizer.eos_token_id])

    for step in range(1, steps + 1):
        chosen = [row for row in rng.choices(rows, k=PAIRS) if len(row["answer"].split()) > 1]
        good = [encoded(row, "Answer: " + row["answer"]) for row in chosen]
        bad = [encoded(row, spoiled(row["answer"].split(), rng)) for row in chosen]
        ids_BT = torch.nn.utils.rnn.pad_sequence(good + bad, batch_first=True, padding_value=tokenizer.pad_token_id)
        last_B = torch.tensor([len(row) - 1 for row in good + bad])
        hidden_BTH = model.model(input_ids=ids_BT, attention_mask=ids_BT != tokenizer.pad_token_id).last_hidden_state
        scores_B = model.score(hidden_BTH[torch.arange(len(last_B)), last_B]).squeeze(-1)
        better, worse = scores_B.chunk(2)
        loss = -logsigmoid(better - worse).mean() + 0.01 * (scores_B**2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0 or step == steps:
            print(f"step {step}: loss {loss:.3f}, right {float((better > worse).float().mean()):.0%}", flush=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:3]))
