"""Supervised warm-up with whet's own learner: demonstrations are samples, and the loss is their negative log-prob.

    python warm_up.py config=warm_up.yaml data.train_files=train.jsonl worker.actor.model.model_path=FOLDER out=FOLDER

writes out/huggingface.
"""

from __future__ import annotations

import random
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from whet.assets import resolve_model
from whet.config import Config, load_config, resolve_path
from whet.data.dataset import PromptDataset
from whet.model.load import load_tokenizer
from whet.supervised.likelihood import NO_VERSION, NegativeLogLikelihood
from whet.training import parts
from whet.training.device import choose_placement
from whet.types import Sample

CALCULATOR = re.compile(r"<<[^<>]*>>")  # GSM8K's "48/2 = <<48/2=24>>24"


def warm_up(config: Config, out: Path, say: Callable[[str], None] = print) -> dict[str, float]:
    """Train on the demonstrations of `data.train_files` for `trainer.total_epochs`; returns what it came to."""
    started = time.perf_counter()
    path = resolve_model(config.worker.actor.model.model_path or "", say)
    tokenizer = load_tokenizer(path)
    shown = demonstrations(config, tokenizer)
    size = min(config.data.rollout_batch_size, len(shown))
    steps = len(shown) // size * config.trainer.total_epochs
    learner = parts.open_learner(config, parts.load_weights(path, config, choose_placement(config)), steps)
    step, tokens, loss = 0, 0, 0.0
    for epoch in range(config.trainer.total_epochs):
        order = shown.copy()
        random.Random(f"{config.data.seed} {epoch}").shuffle(order)
        for first in range(0, len(order) - size + 1, size):
            step += 1
            batch = order[first : first + size]
            objective = NegativeLogLikelihood.of(batch, config)
            loss = learner.update(batch, objective, step, size, version=NO_VERSION)["actor/loss"]
            tokens += sum(len(sample.ids) for sample in batch)
        say(f"warm-up: epoch {epoch + 1} of {config.trainer.total_epochs}, step {step} of {steps}, loss {loss:.3f}")
    learner.save(out, tokenizer, model_only=True)
    return {"steps": step, "loss": loss, "response_tokens": tokens, "seconds": time.perf_counter() - started}


def demonstrations(config: Config, tokenizer: PreTrainedTokenizerBase) -> list[Sample]:
    """Problems with their worked solutions as responses, each ended as the model ends its own."""
    resolve = lambda value: resolve_path(config, value)  # noqa: E731
    prompts = list(PromptDataset(config.data.train_files, config.data, tokenizer, resolve=resolve))
    texts = [CALCULATOR.sub("", str(prompt.answer)).strip() for prompt in prompts]
    ids = tokenizer(texts, add_special_tokens=False, return_attention_mask=False)["input_ids"]
    samples = [
        Sample.written(prompt, [*row, tokenizer.eos_token_id], [0.0] * (len(row) + 1), "stop")
        for prompt, row in zip(prompts, ids)
    ]
    return [sample for sample in samples if len(sample.ids) <= config.data.max_response_length]


def main() -> None:
    (out,) = (Path(argument.removeprefix("out=")) for argument in sys.argv[1:] if argument.startswith("out="))
    config = load_config([argument for argument in sys.argv[1:] if not argument.startswith("out=")])
    print(warm_up(config, out))


if __name__ == "__main__":
    main()
