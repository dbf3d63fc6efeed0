"""Requests of OpenAI's Responses API as chat completions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from whet.chat.apis.reading import (
    BadRequestError,
    Body,
    Translated,
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

Earlier = Callable[[str], "list[Body] | None"]
# Fields that change nothing that is answered.
_IGNORED = (
    *("metadata", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "service_tier"),
    *("reasoning", "include", "stream_options", "truncation", "max_tool_calls", "parallel_tool_calls"),
)
_REFUSED: dict[str, tuple[Any, ...]] = {
    "background": (False,),
    "conversation": (),
    "prompt": (),
    "top_logprobs": (0,),
    "context_management": ([],),
    "moderation": (),
}
_KNOWN = (
    *("model", "input", "instructions", "tools", "tool_choice", "max_output_tokens", "temperature", "top_p"),
    *("stream", "store", "text", "previous_response_id", *_IGNORED, *_REFUSED),
)
_ROLES = ("user", "assistant", "system", "developer")
_TEXTS = ("text", "input_text", "output_text")


def read_responses(given: Any, strict: bool, earlier: Earlier) -> Translated:
    """Read a request; `BadRequestError` says what is wrong with it.

    With `strict` unknown fields are refused. `earlier` returns the conversation that ends with a response.
    """
    body = read_object(given, "the body")
    check_fields(body, _KNOWN, strict)
    check_off(body, _REFUSED)
    wanted = read_object(body.get("text") or {}, "text").get("format")
    if wanted is not None and read_object(wanted, "text.format").get("type") != "text":
        raise BadRequestError("text.format: only text is written here", "text.format", "unsupported_value")
    messages = [*_before(body.get("previous_response_id"), earlier), *_input(body.get("input"))]
    if not messages or messages[-1]["role"] == "assistant":
        raise BadRequestError("input must end with a message or a result that the model answers", "input")
    system = [] if body.get("instructions") is None else [read_text(body["instructions"], "instructions")]
    instructions = [{"role": "system", "content": text} for text in system if text]
    chat: Body = {"model": read_name(body.get("model"), "model"), "messages": [*instructions, *messages]}
    chat["stream"] = read_flag(body.get("stream"), "stream")
    if body.get("max_output_tokens") is not None:
        chat["max_tokens"] = read_count(body["max_output_tokens"], "max_output_tokens")
    for name in ("temperature", "top_p"):
        if body.get(name) is not None:
            chat[name] = read_number(body[name], name)
    _add_tools(chat, body)
    names = ("instructions", "max_output_tokens", "previous_response_id", "temperature", "top_p", "metadata")
    echo = {name: body.get(name) for name in names}
    echo |= {"tools": list(body.get("tools") or []), "tool_choice": body.get("tool_choice") or "auto"}
    keep = body.get("store") is None or read_flag(body["store"], "store")
    return Translated(chat, messages, echo, keep)


def _before(given: Any, earlier: Earlier) -> list[Body]:
    if given is None:
        return []
    name = read_name(given, "previous_response_id")
    found = earlier(name)
    if found is None:
        raise BadRequestError(
            f"there is no response {name[:100]}, or it is kept no longer: send the whole conversation as input",
            "previous_response_id",
            "previous_response_not_found",
        )
    return found


def _input(given: Any) -> list[Body]:
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    items = read_list(given, "input")
    made: list[Body] = []
    for number, each in enumerate(items):
        where = f"input.{number}"
        item = read_object(each, where)
        kind = item.get("type") or "message"
        if kind == "message":
            _add_message(made, item, where)
        elif kind == "function_call":
            calls = _turn(made, kind).setdefault("tool_calls", [])
            calls.append(_call(item, where))
        elif kind == "function_call_output":
            name = read_name(item.get("call_id"), f"{where}.call_id")
            made.append(
                {"role": "tool", "tool_call_id": name, "content": _content(item.get("output"), where, "output")}
            )
        elif kind == "reasoning":
            if thought := _reasoning(item, where):
                _turn(made, kind)["reasoning_content"] = thought
        else:
            raise BadRequestError(f"{where}.type: {str(kind)[:60]} is not supported here", f"{where}.type")
    return made


def _add_message(made: list[Body], item: Mapping[str, Any], where: str) -> None:
    role = item.get("role")
    if role not in _ROLES:
        raise BadRequestError(f"{where}.role must be one of {', '.join(_ROLES)}", f"{where}.role")
    content = _content(item.get("content"), where, "content")
    if role == "assistant":
        _turn(made, "message")["content"] = content
    else:
        made.append({"role": "system" if role == "developer" else role, "content": content})


def _turn(made: list[Body], kind: str) -> Body:
    """Return the turn that an item of the model's belongs to: reasoning, text and calls in a row are one turn."""
    last = made[-1] if made else {}
    is_thought = "reasoning_content" in last and not last["content"] and "tool_calls" not in last
    if last.get("role") != "assistant" or not (kind == "function_call" or (kind == "message" and is_thought)):
        made.append({"role": "assistant", "content": ""})
    return made[-1]


def _content(given: Any, where: str, name: str) -> str | list[Body]:
    if isinstance(given, str):
        return given
    parts: list[Body] = []
    for number, each in enumerate(read_list(given, f"{where}.{name}")):
        here = f"{where}.{name}.{number}"
        part = read_object(each, here)
        kind = part.get("type")
        if kind in _TEXTS:
            parts.append({"type": "text", "text": read_text(part.get("text"), f"{here}.text")})
        elif kind == "refusal":
            parts.append({"type": "text", "text": read_text(part.get("refusal"), f"{here}.refusal")})
        elif kind == "input_image":
            url = read_name(part.get("image_url"), f"{here}.image_url")
            parts.append({"type": "image_url", "image_url": {"url": url}})
        else:
            raise BadRequestError(f"{here}.type: {str(kind)[:60]} is not supported here", f"{here}.type")
    return joined(parts, "")


def _reasoning(item: Mapping[str, Any], where: str) -> str:
    """Return the text of reasoning; "" for an item that has none, of which nothing can be read."""
    for name in ("content", "summary"):
        parts = read_list(item.get(name) or [], f"{where}.{name}")
        texts = [read_object(each, f"{where}.{name}.{number}").get("text") for number, each in enumerate(parts)]
        if texts:
            return "\n".join(read_text(text, f"{where}.{name}.{number}.text") for number, text in enumerate(texts))
    return ""


def _call(item: Mapping[str, Any], where: str) -> Body:
    arguments = item.get("arguments")
    text = read_text(arguments if arguments is not None else json.dumps({}), f"{where}.arguments")
    function = {"name": read_name(item.get("name"), f"{where}.name"), "arguments": text}
    return {"id": read_name(item.get("call_id"), f"{where}.call_id"), "type": "function", "function": function}


def _add_tools(chat: Body, body: Mapping[str, Any]) -> None:
    tools = []
    for number, each in enumerate(read_list(body.get("tools") or [], "tools")):
        where = f"tools.{number}"
        tool = read_object(each, where)
        if tool.get("type") != "function":
            raise BadRequestError(
                f"{where}.type: {str(tool.get('type'))[:60]} is not supported here, only function", f"{where}.type"
            )
        name = read_name(tool.get("name"), f"{where}.name")
        tools.append(function_tool(name, tool.get("description"), tool.get("parameters"), where))
    if tools:
        chat["tools"] = tools
    choice = body.get("tool_choice")
    if isinstance(choice, Mapping):
        if choice.get("type") != "function":
            raise BadRequestError("tool_choice must be auto, none, required or a function", "tool_choice")
        name = read_name(choice.get("name"), "tool_choice.name")
        chat["tool_choice"] = {"type": "function", "function": {"name": name}}
    elif choice is not None:
        if choice not in ("auto", "none", "required"):
            raise BadRequestError("tool_choice must be auto, none, required or a function", "tool_choice")
        chat["tool_choice"] = choice
