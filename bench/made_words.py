"""A tokenizer of made-up words, one for each id, as programs want one beside the weights that they open.

Libraries open the folder of a Qwen with Qwen's own class, whatever the folder says, and that class splits text in its
own way. So this is a byte-pair vocabulary: a word is a capital and small letters, each word the merge of a shorter one
and a letter. Words follow each other without spaces; the capitals tell them apart.
"""

from __future__ import annotations

from itertools import chain, count, islice, product
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase

SPECIAL = ("<pad>", "<end>", "Ċ")  # the last is how byte-level vocabularies spell a newline
FIRST = len(SPECIAL) + len(ascii_lowercase)  # ids below are no words


def words(vocabulary: int) -> list[str]:
    """The words of the ids from FIRST on: A, B, ..., Z, Aa, Ab, ..., Zz, Aaa, ..."""
    lengths = (product(ascii_uppercase, *[ascii_lowercase] * more) for more in count())
    return ["".join(word) for word in islice(chain.from_iterable(lengths), vocabulary - FIRST)]


def write_tokenizer(folder: Path, vocabulary: int) -> None:
    """Save a tokenizer with as many ids; its chat template adds nothing to a message."""
    from transformers import Qwen2Tokenizer

    made = words(vocabulary)
    ids = {token: i for i, token in enumerate((*SPECIAL, *ascii_lowercase, *made))}
    tokenizer = Qwen2Tokenizer(
        vocab=ids,
        merges=[(word[:-1], word[-1]) for word in made if len(word) > 1],
        unk_token="<pad>",
        pad_token="<pad>",
        eos_token="<end>",
    )
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    tokenizer.save_pretrained(folder)
