"""Open the reward of a config that has a reward model or a judge in it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from whet.assets import resolve_model
from whet.config import Config, local_name
from whet.config.schema.reward import TERMS
from whet.data.chat import Message, as_messages, last_user_turn
from whet.data.columns import MISSING, Sources, lookup
from whet.data.rows import file_of
from whet.data.template import PromptTemplate
from whet.errors import UserError
from whet.rewards.choice import with_match
from whet.rewards.mixed import MixedScorer
from whet.rewards.protocol import Term
from whet.rewards.scorer import RewardScorer
from whet.tracking.console import Console
from whet.training.device import choose_placement
from whet.training.parts import resolver
from whet.types import Prompt

_DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What terms are built from besides their own section."""

    config: Config
    tokenizer: PreTrainedTokenizerBase | None  # the policy's; None where nothing reads its tokens
    console: Console
    folder: Path  # the run's, for what is kept between starts

    def file(self, name: str) -> Path:
        """Return the file that a value of the config names."""
        return file_of(name, resolver(self.config))

    def model(self, name: str) -> str:
        """Return the folder or hub id that a value of the config names."""
        return resolve_model(local_name(self.config, name), self.console.note)

    def device(self, section: str, wanted: str, dtype: str | None) -> tuple[torch.device, torch.dtype]:
        """Return the device that a key names, and the precision that suits it."""
        device = choose_placement(self.config).device if wanted == "auto" else torch.device(wanted)
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            raise UserError(
                f"{section}.device={wanted}: torch sees {torch.cuda.device_count()} CUDA devices here; name another"
            )
        return device, _DTYPES[dtype or ("bf16" if device.type == "cuda" else "fp32")]


class Conversations:
    """Messages of prompts, as the policy's chat template was given them."""

    def __init__(self, around: Surroundings) -> None:
        data = around.config.data
        self._key = data.prompt_key
        self._template = PromptTemplate(around.file(data.format_prompt)) if data.format_prompt else None

    def __call__(self, prompt: Prompt) -> list[Message]:
        """Return the turns before the response; a prompt without its column is one turn of the user's."""
        value = lookup(prompt.extra, self._key)
        if value is MISSING:
            return [{"role": "user", "content": prompt.text}]
        messages = as_messages(value, prompt.uid, self._key, Sources())
        if self._template:
            turn = last_user_turn(messages, prompt.uid)
            turn["content"] = self._template.render(turn["content"], prompt.extra, prompt.uid)
        return messages


def open_mixed(
    config: Config,
    tokenizer: PreTrainedTokenizerBase | None,
    console: Console,
    folder: Path,
    resolve: Callable[[str], Path] | None = None,
    output: Path | None = None,
) -> MixedScorer:
    """Return the scorer of functions, reward model and judge that the config names; weights are not loaded."""
    reward = config.worker.reward
    around = Surroundings(config, tokenizer, console, folder)
    weights = {name: _weight(reward.parts, name) for name in TERMS if name in reward.terms}
    functions = {spec: weight for spec, weight in reward.parts.items() if spec not in TERMS}
    with ExitStack() as stack:  # what is open is closed where a later part cannot be opened
        terms = []
        for name, weight in weights.items():
            terms.append((_OPEN[name](around), weight))
            stack.callback(terms[-1][0].close)
        function = None
        if functions:
            own = replace(reward, combine=functions, reward_function=None, url=None)
            own = replace(own, reward_function_kwargs=with_match("", own, config.algorithm.match))
            function = RewardScorer("", own, resolve or resolver(config), console.warn, output, config.sandbox)
        scorer = MixedScorer(function, terms, reward, console.warn, output)
        stack.pop_all()
    return scorer


def _weight(parts: dict[str, Any], name: str) -> float:
    weight = parts.get(name, 1.0)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not abs(weight) <= 1e6:
        raise UserError(f"worker.reward.combine.{name}={weight!r}: the weight must be a number within ±1e6")
    return float(weight)


def _model(around: Surroundings) -> Term:
    from whet.training.reward_model import open_model_term

    return open_model_term(around, Conversations(around))


def _judge(around: Surroundings) -> Term:
    from whet.training.judge import open_judge_term

    return open_judge_term(around, Conversations(around))


_OPEN = {"model": _model, "judge": _judge}
