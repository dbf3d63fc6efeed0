"""Refusal of prompts that are much too long, before the time is spent to make tokens of all of them."""

from __future__ import annotations

from transformers import PreTrainedTokenizerBase

from whet.serving.errors import ApiError

_USUAL = 8  # characters of a token that most texts stay below
_LEAST = 8192  # characters that are not worth a look
_STEP = 4  # by which a look is longer than the one before
_MARGIN = 2  # the beginning of a text can have more tokens than it has as a part of the text, but not twice as many


class LengthCheck:
    """Compares texts with the number of tokens that a model reads."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, max_len: int) -> None:
        self._tokenizer, self._max_len = tokenizer, max_len
        longest = max((len(token) for token in tokenizer.get_vocab()), default=1)
        self.most = max(_LEAST, max_len * longest)  # characters that could be few enough tokens

    def check_size(self, characters: int, param: str) -> None:
        """Raise 400 for more characters than the tokens have that the model reads."""
        if characters > self.most:
            raise self._too_long(f"{characters} characters", param)

    def check(self, text: str, param: str) -> None:
        """Raise 400 for a text that is certainly too long; the work is bounded by what the model reads."""
        self.check_size(len(text), param)
        size = max(_LEAST, _USUAL * self._max_len)
        while size < len(text):
            tokens = len(self._tokenizer(text[:size], add_special_tokens=False, verbose=False)["input_ids"])
            if tokens >= _MARGIN * self._max_len:
                raise self._too_long(f"more than {tokens // _MARGIN} tokens", param)
            size *= _STEP

    def check_tokens(self, tokens: int, param: str) -> None:
        """Raise 400 unless a token of response has room after a prompt."""
        if tokens >= self._max_len:
            raise self._too_long(f"{tokens} tokens", param)

    def _too_long(self, size: str, param: str) -> ApiError:
        text = f"the prompt has {size}, and the model reads {self._max_len} tokens with the response"
        return ApiError(400, text, "context_length_exceeded", param)
