"""The harness of a run: found, checked, given an endpoint, and ended with the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from transformers import PreTrainedTokenizerBase

from whet.chat.calls.format import without_calls
from whet.chat.calls.registry import FORMATS, detect, parser
from whet.config import Config
from whet.config.schema.rollout import RolloutConfig
from whet.envs.harness.programs import CommandProgram, FunctionProgram, Program, taken_names
from whet.envs.harness.server import SessionServer
from whet.envs.host import EnvHost
from whet.envs.loading import find_object
from whet.errors import UserError
from whet.rollout.engine import Engine, SamplingParams
from whet.rollout.episodes import Finish, Limits
from whet.rollout.harness import Harness, HarnessEpisodes
from whet.training.environments import chat_template, conversations
from whet.training.episode_failures import EpisodeFailures
from whet.training.parts import resolver
from whet.types import Prompt

if TYPE_CHECKING:
    from whet.model.processor import Processor

FUNCTION, COMMAND = "worker.rollout.agent", "worker.rollout.agent_command"


class Harnesses(EpisodeFailures):
    """A user's program that calls the policy over HTTP, run for every sample."""

    def __init__(
        self,
        config: Config,
        tokenizer: PreTrainedTokenizerBase,
        ends: frozenset[int],
        processor: Processor | None,
        warn: Callable[[str], None],
    ) -> None:
        rollout = config.worker.rollout
        name = rollout.agent or rollout.agent_command or ""
        key = FUNCTION if rollout.agent is not None else COMMAND
        super().__init__(key, "agent", name, config.worker.reward.fallback, warn)
        form = rollout.tool_format or detect(chat_template(config, tokenizer, processor))
        program, parse = _program(config), parser(form)
        self._server, self._host = SessionServer(), EnvHost()
        self._harness = Harness(
            program,
            self._server,
            self._host,
            conversations(config, tokenizer, ends, processor),
            parse,
            rollout.agent_timeout,
            not config.worker.reward.is_named,
            without_calls(FORMATS.find(form)),
        )

    def __enter__(self) -> Harnesses:
        return self

    def __exit__(self, *_: object) -> None:
        self._host.close()
        self._harness.program.close()
        self._server.close()

    def check(self, rows: Sequence[Prompt]) -> None:
        """Do nothing: a harness cannot be tried without a policy, and what can be checked was when it was found."""

    def episodes(
        self, engine: Engine, params: SamplingParams, rollout: RolloutConfig, finish: Finish
    ) -> HarnessEpisodes:
        """Return the rollout of a collector; responses have at most `params.max_tokens` tokens in all."""
        limits = Limits(rollout.max_turns, params.max_tokens, rollout.max_turn_tokens)
        return HarnessEpisodes(engine, params, self._harness, limits, finish, self.report)


def _program(config: Config) -> Program:
    rollout = config.worker.rollout
    if rollout.agent is None:
        return CommandProgram(rollout.agent_command or "", COMMAND)
    function = find_object(FUNCTION, rollout.agent, resolver(config))
    _check_signature(rollout.agent, function)
    return FunctionProgram(function)


def _check_signature(name: str, function: Any) -> None:
    if not callable(function):
        raise UserError(f"{FUNCTION}={name}: expected a function, found a {type(function).__name__}")
    try:
        taken_names(function)
    except TypeError:
        raise UserError(
            f"{FUNCTION}={name}: the function must take (base_url, api_key, row), or some of them by these names"
        ) from None
