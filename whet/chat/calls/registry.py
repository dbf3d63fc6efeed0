"""Formats by name, and the format that a chat template asks for."""

from __future__ import annotations

from collections.abc import Callable

from whet.chat.calls.format import Format
from whet.chat.messages import Parsed
from whet.config.registry import Registry

FORMATS = Registry("worker.rollout.tool_format", "whet.chat.calls", "FORMAT", entry_points="whet.tool_formats")
USUAL = "hermes"
_VERL_NAMES = {"gpt-oss": "gptoss", "llama3_json": "llama", "gemma4": "gemma", "deepseek_v3": "deepseek"}


def parser(name: str) -> Callable[[str], Parsed]:
    """Return the function that parses turns in a format; `UserError` for a name that there is not."""
    found: Format = FORMATS.find(name)
    return found.parse


def format_name(name: str | None, template: str | None) -> str:
    """Return a format's name in whet for the one of a config, or else the one that a chat template asks for."""
    found = _VERL_NAMES.get(name, name) if name is not None else detect(template)
    FORMATS.find(found)  # raises for a format that there is not
    return found


def detect(template: str | None) -> str:
    """Return the name of the format that a chat template writes calls in; Hermes where it does not say."""
    found = [(FORMATS.find(name), name) for name in FORMATS.names]
    fitting = [(each.rank, name) for each, name in found if template and each.is_for(template)]
    return max(fitting)[1] if fitting else USUAL
