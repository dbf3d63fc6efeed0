"""Requests of Anthropic's Messages API as chat completions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from whet.chat.apis.reading import (
    BadRequestError,
    Body,
    Translated,
    check_depth,
    check_fields,
    check_off,
    function_tool,
    joined,
    read_count,
    read_flag,
    read_list,
    read_name,
    read_number,
    read_object,
    read_text,
)

# Fields that change nothing that is answered: caching, accounting, and how much a model of Anthropic's thinks.
_IGNORED = ("metadata", "service_tier", "thinking", "cache_control", "inference_geo", "betas", "context_management")
_REFUSED: dict[str, tuple[Any, ...]] = {"mcp_servers": ([],), "container": (), "output_format": ()}
_KNOWN = (
    *("model", "messages", "system", "tools", "tool_choice", "max_tokens", "stop_sequences", "stream"),
    *("temperature", "top_p", "top_k", "output_config", *_IGNORED, *_REFUSED),
)


def read_messages(given: Any, strict: bool, counts: bool = False) -> Translated:
    """Read a request; `BadRequestError` says what is wrong with it.

    With `strict` unknown fields are refused; with `counts` it asks for a number of tokens only, and has no limit.
    """
    body = read_object(given, "the body")
    check_fields(body, _KNOWN, strict)
    check_off(body, _REFUSED)
    output = read_object(body.get("output_config") or {}, "output_config")
    if output.get("format") is not None:
        raise BadRequestError("output_config.format is not supported here: leave it out", "output_config")
    chat: Body = {"model": read_name(body.get("model"), "model"), "messages": _messages(body)}
    if chat["messages"][-1]["role"] == "assistant":
        raise BadRequestError(
            "messages: the last message must not be the assistant's: the model writes the next turn", "messages"
        )
    if not counts:
        chat["max_tokens"] = read_count(body.get("max_tokens"), "max_tokens")
        chat["stream"] = read_flag(body.get("stream"), "stream")
    if stops := body.get("stop_sequences"):
        chat["stop"] = [
            read_name(each, f"stop_sequences.{number}")
            for number, each in enumerate(read_list(stops, "stop_sequences"))
        ]
    for name in ("temperature", "top_p", "top_k"):
        if body.get(name) is not None:
            chat[name] = read_number(body[name], name)
    _add_tools(chat, body)
    return Translated(chat)


def _messages(body: Mapping[str, Any]) -> list[Body]:
    given = read_list(body.get("messages"), "messages")
    if not given:
        raise BadRequestError("messages must not be empty", "messages")
    made: list[Body] = []
    if body.get("system"):
        made.append({"role": "system", "content": _system(body["system"], "system")})
    for number, each in enumerate(given):
        where = f"messages.{number}"
        message = read_object(each, where)
        role, content = message.get("role"), message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if role == "user":
            made += _user(read_list(blocks, f"{where}.content"), f"{where}.content")
        elif role == "assistant":
            made.append(_assistant(read_list(blocks, f"{where}.content"), f"{where}.content"))
        elif role == "system":
            made.append({"role": "system", "content": _system(content, f"{where}.content")})
        else:
            raise BadRequestError(f"{where}.role must be user or assistant", f"{where}.role")
    return made


def _system(given: Any, where: str) -> str:
    if isinstance(given, str):
        return given
    blocks = [read_object(each, f"{where}.{number}") for number, each in enumerate(read_list(given, where))]
    return "\n".join(read_text(block.get("text"), f"{where}.{number}.text") for number, block in enumerate(blocks))


def _user(blocks: list[Any], where: str) -> list[Body]:
    """Return a user's message: results of tools are messages of their own."""
    made: list[Body] = []
    parts: list[Body] = []
    for number, each in enumerate(blocks):
        here = f"{where}.{number}"
        block = read_object(each, here)
        if block.get("type") != "tool_result":
            parts.append(_part(block, here))
            continue
        if parts:
            made.append({"role": "user", "content": joined(parts, "\n")})
            parts = []
        name = read_name(block.get("tool_use_id"), f"{here}.tool_use_id")
        made.append({"role": "tool", "tool_call_id": name, "content": _result(block.get("content"), here)})
    if parts or not made:
        made.append({"role": "user", "content": joined(parts, "\n")})
    return made


def _result(content: Any, where: str) -> str | list[Body]:
    if content is None or isinstance(content, str):
        return content or ""
    given = read_list(content, f"{where}.content")
    parts = [_part(read_object(each, f"{where}.content.{number}"), where) for number, each in enumerate(given)]
    return joined(parts, "\n")


def _part(block: Mapping[str, Any], where: str) -> Body:
    if block.get("type") == "text":
        return {"type": "text", "text": read_text(block.get("text"), f"{where}.text")}
    if block.get("type") == "image":
        source = read_object(block.get("source"), f"{where}.source")
        if source.get("type") != "base64":
            raise BadRequestError(
                f"{where}.source: an image must be given as base64; addresses are not followed", where
            )
        kind, data = (read_name(source.get(name), f"{where}.source.{name}") for name in ("media_type", "data"))
        return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}
    raise BadRequestError(f"{where}.type: {str(block.get('type'))[:60]} is not supported here", f"{where}.type")


def _assistant(blocks: list[Any], where: str) -> Body:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[Body] = []
    for number, each in enumerate(blocks):
        here = f"{where}.{number}"
        block = read_object(each, here)
        kind = block.get("type")
        if kind == "thinking":
            thoughts.append(read_text(block.get("thinking"), f"{here}.thinking"))
        elif kind == "tool_use":
            calls.append(_call(block, here))
        elif kind == "text":
            texts.append(read_text(block.get("text"), f"{here}.text"))
        elif kind != "redacted_thinking":
            raise BadRequestError(f"{here}.type: {str(kind)[:60]} is not supported here", f"{here}.type")
    message: Body = {"role": "assistant", "content": "".join(texts)}
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    return message | {"tool_calls": calls} if calls else message


def _call(block: Mapping[str, Any], where: str) -> Body:
    given = read_object(block.get("input"), f"{where}.input")
    check_depth(given, f"{where}.input")
    function = {"name": read_name(block.get("name"), f"{where}.name"), "arguments": json.dumps(given)}
    return {"id": read_name(block.get("id"), f"{where}.id"), "type": "function", "function": function}


def _add_tools(chat: Body, body: Mapping[str, Any]) -> None:
    given = read_list(body.get("tools") or [], "tools")
    tools = [_tool(read_object(each, f"tools.{number}"), f"tools.{number}") for number, each in enumerate(given)]
    if tools:
        chat["tools"] = tools
    if body.get("tool_choice") is None:
        return
    choice = read_object(body["tool_choice"], "tool_choice")
    kind = choice.get("type")
    if kind == "tool":
        name = read_name(choice.get("name"), "tool_choice.name")
        chat["tool_choice"] = {"type": "function", "function": {"name": name}}
    elif kind in ("auto", "any", "none"):
        chat["tool_choice"] = "required" if kind == "any" else kind
    else:
        raise BadRequestError("tool_choice.type must be auto, any, tool or none", "tool_choice")


def _tool(given: Mapping[str, Any], where: str) -> Body:
    if given.get("type") not in (None, "custom"):
        raise BadRequestError(
            f"{where}: {str(given['type'])[:60]} is a tool of Anthropic's own, which this model does not have", where
        )
    name = read_name(given.get("name"), f"{where}.name")
    return function_tool(name, given.get("description"), given.get("input_schema") or {}, where)
