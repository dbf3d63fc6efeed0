"""The quickstart's warm start: a small Llama taught by demonstrations, in a plain supervised loop.

Reinforcement learning can only sharpen what a model sometimes does. This stage teaches the format and a few habits
(see `assets/digits.py`), the wanted one among them, and stops there. No validation, no checkpoints: it takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

STEPS = 350
BATCH = 64
PEAK_LR = 5e-3
WARMUP = 40
SAY_EVERY = 50
IGNORED = -100


def encode(tokenizer: PreTrainedTokenizerFast, pairs: list[tuple[str, str]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-padded token ids (B, T) of (message, reply) chats; labels (B, T): the reply's ids, IGNORED elsewhere."""
    chats = [[{"role": "user", "content": message}] for message, _ in pairs]
    texts = tokenizer.apply_chat_template(chats, tokenize=False, add_generation_prompt=True)
    prompts = tokenizer(texts)["input_ids"]
    replies = [[*ids, tokenizer.eos_token_id] for ids in tokenizer([reply for _, reply in pairs])["input_ids"]]
    ids = [torch.tensor(prompt + reply) for prompt, reply in zip(prompts, replies)]
    labels = [torch.tensor([IGNORED] * len(prompt) + reply) for prompt, reply in zip(prompts, replies)]
    return (
        pad_sequence(ids, batch_first=True, padding_value=tokenizer.pad_token_id),
        pad_sequence(labels, batch_first=True, padding_value=IGNORED),
    )


def lr_factor(step: int) -> float:
    """Linear warmup, then linear decay to zero."""
    return min((step + 1) / WARMUP, (STEPS - step) / (STEPS - WARMUP))


def teach(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    demonstrations: Iterator[tuple[str, str]],
    say: Callable[[str], None],
) -> None:
    """Supervised learning on the demonstrations' replies, in place."""
    fit(model, lambda size: encode(tokenizer, list(islice(demonstrations, size))), say)


def fit(
    model: LlamaForCausalLM, batch: Callable[[int], tuple[torch.Tensor, torch.Tensor]], say: Callable[[str], None]
) -> None:
    """Train on batches of ids and labels (B, T), in place; `batch` makes one of so many rows."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_LR, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_factor)
    model.train()
    for step in range(1, STEPS + 1):
        ids, labels = batch(BATCH)
        # Padding is on the right, where causal attention keeps it out of sight: no mask is needed.
        hidden = model.model(ids, use_cache=False).last_hidden_state[:, :-1]
        targets = labels[:, 1:]
        written = targets != IGNORED
        loss = F.cross_entropy(model.lm_head(hidden[written]), targets[written])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if step % SAY_EVERY == 0:
            say(f"  warm start {step}/{STEPS}: loss {loss.item():.3f}")
    model.eval()
