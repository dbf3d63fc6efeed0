"""The built-in `whet/quickstart`: a task, a tokenizer and a warm-started model, made on this machine in seconds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path

import torch

from whet.assets import digits
from whet.assets.tokenizer import make_tokenizer
from whet.assets.warm_start import make_model, teach

SEED = 1
VOCAB_SIZE = 512


def write_rows(path: Path, lists: Iterable[digits.Digits]) -> None:
    """One JSON object per line, as `data.train_files` reads it."""
    path.write_text("".join(json.dumps(digits.row(one)) + "\n" for one in lists), encoding="utf-8")


@contextmanager
def reproducible(seed: int) -> Iterator[None]:
    """Seed torch and use one thread, so that sums are added in the same order on every machine; then restore both."""
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def make_quickstart(folder: Path, say: Callable[[str], None]) -> None:
    """Write `train.jsonl`, `test.jsonl` and the Hugging Face folder `model/` under `folder`."""
    train, test = digits.splits(SEED)
    write_rows(folder / "train.jsonl", train)
    write_rows(folder / "test.jsonl", test)

    sample = islice(digits.demonstrations(SEED, held_out=test), 2000)
    tokenizer = make_tokenizer(chain.from_iterable(sample), VOCAB_SIZE)
    say("Making the quickstart model (once): a short warm start on demonstrations of mixed quality")
    with reproducible(SEED):
        model = make_model(tokenizer)
        teach(model, tokenizer, digits.demonstrations(SEED, held_out=test), say)
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
