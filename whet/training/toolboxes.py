"""Tools of a run: loaded once, and the environments that use them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from whet.chat.calls.registry import format_name
from whet.config.schema.rollout import RolloutConfig
from whet.envs.protocol import EnvFactory
from whet.tools.env import Toolbox, ToolEnv, ToolLimits
from whet.tools.loading import load_tools


def open_toolbox(rollout: RolloutConfig, resolve: Callable[[str], Path]) -> Toolbox:
    """Return the tools of a config; `UserError` for those that cannot be used."""
    tools = load_tools(list(rollout.tools), rollout.tool_args, resolve)
    limits = ToolLimits(
        rollout.tool_timeout,
        rollout.max_parallel_calls,
        rollout.max_tool_response_length,
        rollout.tool_response_truncate_side,
    )
    interaction = None
    if rollout.interaction is not None:
        from whet.tools.verl import load_interaction

        interaction = load_interaction(Path(resolve(rollout.interaction)))
    return Toolbox(tools, limits, interaction)


def tool_env(toolbox: Toolbox, form: str | None, template: str | None) -> EnvFactory:
    """Return what makes an environment for each sample; without `form` the template says how calls are written."""
    return functools.partial(ToolEnv, toolbox, format_name(form, template))  # type: ignore[return-value]
