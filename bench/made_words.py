"""A tokenizer of made-up words, one for each id, as programs want one beside the weights that they open.

Libraries open the folder of a Qwen with Qwen's own class, whatever the folder says, and that class splits text in its own
way. So this is a byte-pair vocabulary: a word is a capital and small letters, each word the merge of a shorter one
and a letter. Words follow each other without spaces, and one capital after the other tells them apart.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase

SPECIAL = ("<pad>", "<end>", "Ċ")  # the last is how byte-level vocabularies spell a newline
FIRST = len(SPECIAL) + len(ascii_lowercase)  # ids below are no words


def words(vocabulary: int) -> list[str]:
    """The words of the ids from FIRST on: A, B, ..., Z, Aa, Ab, ..., Zz, Aaa, ..."""
    found = list(ascii_uppercase)
    longer = (word + letter for word in found for letter in ascii_lowercase)  # reads what it adds to
    while len(found) < vocabulary - FIRST:
        found.extend(islice(longer, 1))
    return found[: vocabulary - FIRST]


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
