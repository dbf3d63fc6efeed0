"""The built-in models and what each is taught: tokenizer, fresh model, demonstrations, warm start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from random import Random

import torch
from transformers import LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from whet.assets import calculator, collect, digits, guess, quickstart, sentences, vision
from whet.assets.questions import TASKS, held_out
from whet.assets.tokenizer import (
    ASSISTANT,
    END,
    PAD,
    SYSTEM,
    USER,
    learn_tokens,
    make_tokenizer,
    with_chat_template,
)
from whet.assets.vision_model import QWEN2_5, QWEN3, Family, make_vision_model, make_vision_tokenizer
from whet.assets.warm_start import games, pictures, text

Say = Callable[[str], None]
Taught = tuple[PreTrainedModel, PreTrainedTokenizerFast]

VOCAB_SIZE = 512
TELLING_VOCAB_SIZE = 1024  # enough that every word is a token
TEXTS = 2000  # questions and replies that a tokenizer is learned from


@contextmanager
def reproducible(seed: int) -> Iterator[None]:
    """Seed torch and use one thread, so that sums are added in the same order; then restore both.

    Two runs on one processor give the same bits. Another processor may round differently.
    """
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def teach_quickstart(say: Say) -> Taught:
    """Teach a small Llama to sort digits, some of the time."""
    _, test = digits.splits(quickstart.SEED)
    pairs = islice(digits.demonstrations(quickstart.SEED, held_out=test), TEXTS)
    tokenizer = make_tokenizer(chain.from_iterable(pairs), VOCAB_SIZE)
    with reproducible(quickstart.SEED):
        model = LlamaForCausalLM(quickstart.make_config(tokenizer))
        text.teach(model, tokenizer, digits.demonstrations(quickstart.SEED, held_out=test), say)
    return model, tokenizer


def teach_vision(say: Say, family: Family = QWEN2_5) -> Taught:
    """Teach a small vision-language model the tasks of `whet/shapes`, some of the time."""
    seed = vision.SEED
    rng, hidden = Random(seed), {question.pixels for task in TASKS for question in held_out(task, seed)}
    texts = [
        line
        for question in pictures.prompts(seed, TEXTS, hidden)
        for line in (pictures.asked(question), question.reply(rng, looks=0.5))
    ]
    tokenizer = make_vision_tokenizer(texts, VOCAB_SIZE)
    with reproducible(seed):
        model = make_vision_model(tokenizer, family)
        pictures.teach(model, tokenizer, family, pictures.prompts(seed, pictures.PROMPTS, hidden), seed, say)
    return model, tokenizer


def teach_vision3(say: Say) -> Taught:
    """Teach the same to a model of Qwen3-VL's classes."""
    return teach_vision(say, QWEN3)


def teach_sentences(say: Say) -> Taught:
    """Teach a small vision-language model to state counts in sentences of free words."""
    hidden = {question.pixels for question in sentences.draw_questions("test", sentences.TEST_ROWS)}
    rng, shown = Random(vision.SEED), list(sentences.draw_questions("warm start", pictures.PROMPTS, hidden))
    texts = [line for question in shown[:TEXTS] for line in (pictures.asked(question), question.reply(rng, looks=0.5))]
    tokenizer = make_vision_tokenizer(texts, TELLING_VOCAB_SIZE)
    with reproducible(vision.SEED):
        model = make_vision_model(tokenizer, QWEN2_5)
        pictures.teach(model, tokenizer, QWEN2_5, shown, vision.SEED, say)
    return model, tokenizer


def teach_guess(say: Say) -> Taught:
    """Teach a small Llama to guess a number in a few turns, mostly without listening."""
    tokenizer = make_tokenizer(games.texts(guess.episodes(guess.SEED), TEXTS), VOCAB_SIZE)
    with reproducible(guess.SEED):
        model = LlamaForCausalLM(quickstart.make_config(tokenizer))
        games.teach(model, tokenizer, guess.episodes(guess.SEED), say)
    return model, tokenizer


def teach_collect(say: Say) -> Taught:
    """Teach a small vision-language model to say where shapes are in picture after picture, some of the time."""
    rng, shown = Random(collect.SEED), list(islice(collect.demonstrations(collect.SEED), pictures.PROMPTS))
    texts = [line for question in shown[:TEXTS] for line in (question.problem, question.reply(rng, looks=0.5))]
    tokenizer = make_vision_tokenizer(texts, VOCAB_SIZE)
    with reproducible(collect.SEED):
        model = make_vision_model(tokenizer, QWEN2_5)
        pictures.teach(model, tokenizer, QWEN2_5, shown, collect.SEED, say, collect.LOOKS)
    return model, tokenizer


def teach_calculator(say: Say) -> Taught:
    """Teach a small Llama to call a calculator and to repeat its result, some of the time."""
    seed, special = calculator.SEED, [PAD, END, USER, ASSISTANT, SYSTEM, calculator.TOOL]
    lines = games.texts(calculator.demonstrations(seed), TEXTS)
    tokens = learn_tokens(lines, VOCAB_SIZE, special, split_digits=True)
    tokenizer = calculator.with_tools(with_chat_template(tokens))
    with reproducible(seed):
        model = LlamaForCausalLM(quickstart.make_config(tokenizer))
        games.teach(model, tokenizer, calculator.demonstrations(seed), say)
    return model, tokenizer


TEACHERS: dict[str, Callable[[Say], Taught]] = {
    "quickstart": teach_quickstart,
    "vision": teach_vision,
    "vision3": teach_vision3,
    "sentences": teach_sentences,
    "guess": teach_guess,
    "calculator": teach_calculator,
    "collect": teach_collect,
}
