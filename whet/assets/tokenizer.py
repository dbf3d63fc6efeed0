"""The tokenizers of built-in models: byte-level BPE learned from the task's own words, with a chat template."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

PAD, END, USER, ASSISTANT, SYSTEM = "<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>"

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}"
)


def learn_tokens(
    texts: Iterable[str], vocab_size: int, special: Sequence[str], split_digits: bool = False
) -> Tokenizer:
    """Learn merges from `texts`; every byte is in the alphabet, so that any other text can still be written.

    With `split_digits` each digit is a token of its own, so that numbers can be copied digit by digit.
    """
    tokenizer = Tokenizer(models.BPE())
    pieces: pre_tokenizers.PreTokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if split_digits:
        pieces = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pieces])
    tokenizer.pre_tokenizer = pieces
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(special),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def make_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Return a tokenizer with the quickstart's special tokens and chat template, learned from `texts`."""
    return with_chat_template(learn_tokens(texts, vocab_size, [PAD, END, USER, ASSISTANT, SYSTEM]))


def with_chat_template(tokens: Tokenizer) -> PreTrainedTokenizerFast:
    """Return `tokens` as transformers' tokenizer, with the quickstart's special tokens and chat template."""
    return PreTrainedTokenizerFast(
        tokenizer_object=tokens,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[USER, ASSISTANT, SYSTEM],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=512,
    )
