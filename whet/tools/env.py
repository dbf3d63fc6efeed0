"""The environment of a policy with tools: parses calls, runs those of a turn at the same time, ends without a call."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from whet.chat.calls.registry import parser
from whet.chat.messages import Message, Parsed, ToolCall, assistant_message, tool_message
from whet.envs.host import EnvHost, OverrunError
from whet.envs.protocol import Action, StepResult
from whet.tools.arguments import checked
from whet.tools.loading import close_tools
from whet.tools.protocol import Tool, ToolError, ToolResult
from whet.types import Prompt

_SAMPLES = itertools.count()


@dataclass(frozen=True, slots=True)
class ToolLimits:
    """Limits of calls."""

    seconds: float = 30.0  # of one call
    calls: int = 16  # run in one turn; the others are refused
    characters: int = 8192  # of one result
    side: str = "middle"  # what is cut: left keeps the end, right the beginning, middle both


class Toolbox:
    """Tools of a run, opened once and shared by all samples."""

    def __init__(self, tools: list[Tool], limits: ToolLimits | None = None, interaction: Any = None) -> None:
        self.tools = {tool.name: tool for tool in tools}
        self.limits, self.interaction = limits or ToolLimits(), interaction
        self.host = EnvHost()

    async def call(self, function: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """Call a method of a tool, blocking or not, within the time of a call; it raises `Exception`s only."""

        async def run() -> Any:
            return await function(*given, **named)

        waits = inspect.iscoroutinefunction(function)
        try:
            return await self.host.call(
                run if waits else lambda: function(*given, **named), seconds=self.limits.seconds
            )
        except (Exception, asyncio.CancelledError):
            raise
        except BaseException as error:  # sys.exit() of a tool would end the event loop, and with it all episodes
            raise ToolError(f"it raised {type(error).__name__}: {error}") from error

    def close(self) -> None:
        """End what tools started."""
        close_tools(self.tools.values())
        self.host.close()


class ToolEnv:
    """One episode with tools. Errors of calls are observations: they cost nothing but the policy's tokens."""

    def __init__(self, toolbox: Toolbox, form: str = "hermes") -> None:
        """`form` names the format of calls."""
        self._box, self._parse = toolbox, parser(form)
        self._sample = ""
        self._offered: dict[str, Tool] = dict(toolbox.tools)
        self._created: list[Tool] = []
        self._messages: list[Message] = []
        self._counts = {"tool_calls": 0, "tool_errors": 0, "bad_calls": 0}  # of the episode so far
        self._talk: dict[str, Any] | None = None  # keywords of the row for the simulated user
        self.tools: list[dict[str, Any]] = []

    async def reset(self, prompt: Prompt) -> None:
        """Create every tool that the row may use."""
        self._sample = f"{prompt.uid}#{next(_SAMPLES)}"
        self._messages = list(prompt.messages)
        row = prompt.extra.get("extra_info")
        row = row if isinstance(row, dict) else {}
        chosen = row.get("tool_selection")
        if chosen:
            self._offered = {name: tool for name, tool in self._offered.items() if name in chosen}
        settings = row.get("tools_kwargs") or {}
        for name, tool in self._offered.items():
            given = (settings.get(name) or {}).get("create_kwargs") or {}
            self._created.append(tool)
            await self._box.call(tool.create, self._sample, **given)
        self.tools = [tool.schema for tool in self._offered.values()]
        if self._box.interaction is not None:
            self._talk = dict(row.get("interaction_kwargs") or {})
            await self._box.call(self._box.interaction.start_interaction, self._sample, **self._talk)

    async def step(self, action: Action) -> StepResult:
        """Run the calls of a turn; a turn without any ends the episode, or goes to the simulated user."""
        parsed = self._parse(str(action))
        if not parsed.calls and not parsed.bad:
            return await self._answered(action, parsed)
        run, refused = parsed.calls[: self._box.limits.calls], parsed.calls[self._box.limits.calls :]
        results = list(await asyncio.gather(*(self._run(call) for call in run)))
        results += [ToolResult(f"Error: more than {len(run)} calls in one turn", failed=True) for _ in refused]
        message, added = _turns(action, parsed, results, self._box.limits)
        self._messages += [message, *added]
        self._counts["tool_calls"] += len(parsed.calls)
        self._counts["tool_errors"] += sum(result.failed for result in results) + len(parsed.bad)
        self._counts["bad_calls"] += len(parsed.bad)
        # Of an episode's infos the last one counts.
        info: dict[str, Any] = {**self._counts, "message": message}
        return added, sum(result.reward for result in results), False, info

    async def close(self) -> None:
        """Release every tool that was created, whatever one of them raises."""
        created, self._created = self._created, []
        ends: list[Any] = [self._box.call(tool.release, self._sample) for tool in created]
        finalize = getattr(self._box.interaction, "finalize_interaction", None)
        if self._talk is not None and callable(finalize):
            ends.append(self._box.call(finalize, self._sample))
        failures = [each for each in await asyncio.gather(*ends, return_exceptions=True) if isinstance(each, Exception)]
        if failures:
            raise failures[0]

    async def _answered(self, action: Action, parsed: Parsed) -> StepResult:
        message = assistant_message(parsed.content, parsed.reasoning)
        self._messages.append(message)
        if self._talk is None:
            earned = [await self._box.call(tool.reward, self._sample) for tool in self._created]
            end = "answer" if action.finish == "stop" else None
            return None, float(sum(each for each in earned if each is not None)), True, {"end": end, "message": message}
        reply = await self._box.call(
            self._box.interaction.generate_response, self._sample, list(self._messages), **self._talk
        )
        ended, text, score = reply[0], str(reply[1]), float(reply[2] or 0.0)
        said = [{"role": "user", "content": text}]
        self._messages += said
        return said, score, bool(ended), {"message": message, "end": "user" if ended else None}

    async def _run(self, call: ToolCall) -> ToolResult:
        """Run one call; every failure is a result that says so."""
        tool = self._offered.get(call.name)
        if tool is None:
            names = ", ".join(self._offered) or "none"
            return ToolResult(f"Error: there is no tool {call.name[:100]}; there are {names}", failed=True)
        arguments, wrong = checked(call.arguments, tool.schema)
        if wrong:
            return ToolResult(f"Error: {wrong}", failed=True)
        try:
            result = await self._box.call(tool.execute, self._sample, arguments)
        except OverrunError:
            return ToolResult(f"Error: {call.name} took longer than {self._box.limits.seconds:g} s", failed=True)
        except ToolError as error:
            return ToolResult(f"Error: {error}", failed=True)
        except Exception as error:
            return ToolResult(f"Error: {type(error).__name__}: {str(error)[:500]}", failed=True)
        if not isinstance(result, ToolResult):
            return ToolResult(f"Error: {call.name} returned a {type(result).__name__}", failed=True)
        return result


def _turns(
    action: Action, parsed: Parsed, results: list[ToolResult], limits: ToolLimits
) -> tuple[Message, list[Message]]:
    """Return the policy's turn and the results as messages."""
    errors = _whole("\n".join(f"Error: {bad.reason}" for bad in parsed.bad))
    if not parsed.calls:  # templates want a call before a tool's message
        return {"role": "assistant", "content": str(action)}, [{"role": "user", "content": errors}]
    texts = [_whole(cut(result.content, limits.characters, limits.side)) for result in results]
    if errors:
        texts[-1] = f"{texts[-1]}\n{errors}"
    added = [
        tool_message(call, _content(text, result.images))
        for call, text, result in zip(parsed.calls, texts, results, strict=True)
    ]
    return assistant_message(parsed.content, parsed.reasoning, parsed.calls), added


def _whole(text: str) -> str:
    """Return a text with `?` in place of halves of characters, which JSON may spell and no model reads."""
    return text.encode("utf-8", "replace").decode()


def _content(text: str, images: list[Any]) -> Any:
    if not images:
        return text
    return [{"type": "text", "text": text}, *({"type": "image", "image": image} for image in images)]


def cut(text: str, most: int, side: str) -> str:
    """Return at most so many characters of a result: `left` keeps the end, `right` the beginning, `middle` both."""
    if len(text) <= most:
        return text
    if side == "left":
        return "(truncated)..." + text[-most:]
    if side == "right":
        return text[:most] + "...(truncated)"
    return text[: most // 2] + "...(truncated)..." + text[len(text) - most // 2 :]
