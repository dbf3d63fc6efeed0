"""The environment of a run: found, tried on a row, asked for episodes, and closed with the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from transformers import PreTrainedTokenizerBase

from whet.config import Config
from whet.config.schema.rollout import RolloutConfig
from whet.data.chat import template_text
from whet.envs.host import EnvHost
from whet.envs.loading import KEY, env_factory
from whet.envs.session import RAISED, EnvFailure, EnvSession
from whet.errors import UserError
from whet.rollout.blocking import run_blocking
from whet.rollout.conversation import Conversations
from whet.rollout.engine import Engine, SamplingParams
from whet.rollout.episodes import Episodes, Finish, Limits
from whet.training.episode_failures import EpisodeFailures
from whet.training.parts import resolver
from whet.types import Prompt, Sample

if TYPE_CHECKING:
    from whet.model.processor import Processor


class Environments(EpisodeFailures):
    """Environments for the samples of a run."""

    def __init__(
        self,
        config: Config,
        tokenizer: PreTrainedTokenizerBase,
        ends: frozenset[int],
        processor: Processor | None,
        warn: Callable[[str], None],
    ) -> None:
        rollout = config.worker.rollout
        super().__init__(KEY, "environment", rollout.env or "tools", config.worker.reward.fallback, warn)
        self._toolbox = None
        self._host = EnvHost()
        if rollout.env is not None:
            self._factory = env_factory(self.name, resolver(config), rollout.env_args)
        else:
            from whet.training.toolboxes import open_toolbox, tool_env

            self._host.mark()  # before servers of tools start
            self._toolbox = open_toolbox(rollout, resolver(config))
            self._factory = tool_env(self._toolbox, rollout.tool_format, chat_template(config, tokenizer, processor))
        # A step with tools takes as long as its slowest call, which has a limit of its own.
        self._seconds = max(rollout.env_timeout, 2 * rollout.tool_timeout) if self._toolbox else rollout.env_timeout
        self._conversations = conversations(config, tokenizer, ends, processor)

    def __enter__(self) -> Environments:
        return self

    def __exit__(self, *_: object) -> None:
        self._host.close()
        if self._toolbox is not None:
            self._toolbox.close()

    def check(self, rows: Sequence[Prompt]) -> None:
        """Reset an environment for a row and close it; `UserError` for one that cannot be made or is misused."""
        if rows:
            run_blocking(self._check(rows[0]))

    async def _check(self, prompt: Prompt) -> None:
        env = self._session()
        try:
            opened = await env.open(prompt, 0)
            self._conversations.begin(prompt, opened)
            await env.close()
        except EnvFailure as failure:
            if failure.kind == RAISED and failure.place in ("reset", "close"):  # it may be this row's
                self.report(prompt, failure, "in the dry run; training goes on, failures are counted")
                return
            raise UserError(f"{KEY}={self.name}: {failure} (tried with row {prompt.uid})") from None
        finally:
            env.abandon()

    def episodes(self, engine: Engine, params: SamplingParams, rollout: RolloutConfig, finish: Finish) -> Episodes:
        """Return the rollout of a collector; responses have at most `params.max_tokens` tokens in all."""
        limits = Limits(rollout.max_turns, params.max_tokens, rollout.max_turn_tokens)
        return Episodes(engine, params, self._session, self._conversations, limits, finish, self.report)

    def _session(self) -> EnvSession:
        return EnvSession(self._factory, self._host, self._seconds)


def note_accuracy(samples: Sequence[Sample]) -> None:
    """Count the accuracy that environments report as a score, where no reward function gave one."""
    for sample in samples:
        if "accuracy" in sample.info and not {"accuracy", "acc"} & sample.scores.keys():
            sample.scores["accuracy"] = sample.info["accuracy"]


def conversations(
    config: Config, tokenizer: PreTrainedTokenizerBase, ends: frozenset[int], processor: Processor | None
) -> Conversations:
    """Return what begins conversations with the model of a run."""
    template = chat_template(config, tokenizer, processor)
    if template is not None and template == tokenizer.chat_template:
        template = None
    keys = config.data.chat_template_args | ({} if template is None else {"chat_template": template})
    images = None
    if processor is not None:
        from whet.data.observed import ObservedImages

        images = ObservedImages(processor, config.data, bool(template or tokenizer.chat_template))
    return Conversations(tokenizer, ends, config.data.max_prompt_length, images, **keys)


def chat_template(config: Config, tokenizer: PreTrainedTokenizerBase, processor: Processor | None) -> str | None:
    """Return the chat template of a run: the config's, the tokenizer's or the processor's."""
    chosen = template_text(config.data.override_chat_template, resolver(config))
    own = tokenizer.chat_template if isinstance(tokenizer.chat_template, str) else None
    return chosen or own or (processor.chat_template if processor is not None and not tokenizer.chat_template else None)
