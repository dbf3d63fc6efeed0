"""`whet chat`: talk to a model in the terminal, under the templates and sampling parameters of its run."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from transformers import PretrainedConfig
from transformers.utils import logging as transformers_logging

from whet.config import Config
from whet.data.chat import Message
from whet.data.rows import RowReader
from whet.errors import UserError
from whet.evals.sampling import Policy, open_policy
from whet.rollout.blocking import run_blocking
from whet.rollout.engine import Engine
from whet.tracking.console import Console
from whet.tracking.lines import visible
from whet.training.parts import resolver
from whet.training.rollouts import sampling_params
from whet.types import Prompt

NEW = "/new"
UID = "your message"
LONGEST = 8192  # tokens of a chat, if the model has as many positions
_BROKEN = "\ufffd"  # what a decoder writes for the first bytes of a character

Write = Callable[[str], None]


class Chat:
    """A conversation with a model; each message continues it, for models that have a chat template."""

    def __init__(self, policy: Policy, engine: Engine) -> None:
        config = policy.config
        self._policy, self._engine, self._key = policy, engine, config.data.prompt_key
        self._reader = RowReader(config.data, policy.tokenizer, resolver(config), policy.processor)
        self._room = config.data.max_prompt_length
        self._params = replace(sampling_params(config.worker.rollout, config.data.max_response_length), n=1)
        self._turns: list[Message] = []
        self._asked = 0

    def forget(self) -> None:
        """Start a new conversation."""
        self._turns = []

    def say(self, text: str, write: Write) -> None:
        """Send a message, and write the answer as it comes. A `UserError` leaves the conversation as it was."""
        (turn,) = self._reader.prompt({self._key: text}, UID)[0]
        turns = [*self._turns, turn] if self._reader.chat.speaks_chat else [turn]
        (written,) = self._reader.chat.write([turns], [UID])
        ids = self._policy.tokenizer(written, add_special_tokens=self._reader.special)["input_ids"]
        if len(ids) > self._room:
            raise UserError(f"the conversation has {len(ids)} tokens, and {self._room} fit; {NEW} starts a new one")
        answer = run_blocking(self._answer(Prompt(UID, list(ids), written), write))
        self._turns = [*turns, {"role": "assistant", "content": answer}]

    async def _answer(self, prompt: Prompt, write: Write) -> str:
        ids: list[int] = []
        shown, finish = "", None
        self._asked += 1  # another answer to the same message has other random numbers
        async for piece in self._engine.stream([prompt], self._params, [self._asked]):
            ids += piece.ids
            finish = piece.finish
            text = self._text(ids)
            if not text.endswith(_BROKEN) or finish is not None:
                write(visible(text[len(shown) :]))
                shown = text
        if finish == "length":
            write(f" [cut at {self._params.max_tokens} tokens: data.max_response_length]")
        return shown

    def _text(self, ids: list[int]) -> str:
        text = self._policy.tokenizer.decode(ids, skip_special_tokens=True)
        return text if isinstance(text, str) else text[0]


def chat(config: Config) -> None:
    """Read messages until the end of the input or Ctrl-C, and answer each."""
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    console, asks = Console(config.trainer.quiet), sys.stdin.isatty()
    with ExitStack() as stack:
        policy = open_policy(config, console, fit=_fit)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="whet-chat-")))
        conversation = Chat(policy, policy.open_engine(console, stack, folder / "rollout.log"))
        if asks:
            console.note(f"{NEW} starts a new conversation, Ctrl-D or Ctrl-C ends")
        try:
            while True:
                text = input("> " if asks else "")
                if text.strip() == NEW:
                    conversation.forget()
                elif text.strip():
                    _answer(conversation, text)
        except (EOFError, KeyboardInterrupt):
            if asks:
                print()


def _answer(conversation: Chat, text: str) -> None:
    try:
        conversation.say(text, lambda piece: print(piece, end="", flush=True))
    except UserError as error:
        print(f"whet: {error}", end="")
    print()


def _fit(config: Config, model: PretrainedConfig) -> Config:
    """Return the config with a conversation as long as the model's positions allow, decoded alone."""
    positions = getattr(model.get_text_config(), "max_position_embeddings", None) or LONGEST
    data, rollout = config.data, config.worker.rollout
    whole = min(positions, max(LONGEST, data.max_prompt_length + data.max_response_length))
    answer = min(data.max_response_length, max(1, whole // 2))
    return replace(
        config,
        data=replace(data, max_response_length=answer, max_prompt_length=whole - answer),
        worker=replace(config.worker, rollout=replace(rollout, max_model_len=whole, max_num_seqs=1)),
    )
