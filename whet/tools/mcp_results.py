"""Answers of MCP servers as results of calls: text, images, structured values."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

from whet.tools.protocol import ToolResult


def tool_result(answer: Any) -> ToolResult:
    """Return a server's answer as a result; one that says it is an error has failed."""
    texts: list[str] = []
    images: list[Any] = []
    for block in answer.content or ():
        if block.type == "text":
            texts.append(block.text)
        elif block.type == "image":
            images.append(_image(block.data))
        elif block.type == "resource" and getattr(block.resource, "text", None) is not None:
            texts.append(block.resource.text)
        elif block.type == "resource_link":
            texts.append(str(block.uri))
        else:
            texts.append(f"[{block.type}, which cannot be shown]")
    structured = getattr(answer, "structured_content", None)
    if not texts and not images and structured is not None:
        texts.append(json.dumps(structured, ensure_ascii=False, default=str))
    text = "\n".join(texts)
    return ToolResult(f"Error: {text}" if answer.is_error else text, images, failed=bool(answer.is_error))


def _image(data: str) -> Any:
    from PIL import Image

    image = Image.open(io.BytesIO(base64.b64decode(data)))
    image.load()
    return image
