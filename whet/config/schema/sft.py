"""`sft.*`: what `whet sft` reads besides `data`, `worker.actor` and `trainer`."""

from __future__ import annotations

from dataclasses import dataclass

from whet.config.keys import key


@dataclass(frozen=True)
class SftConfig:
    """Columns of demonstrations, and the part of them that is learned."""

    messages_key: str | None = key(
        "messages", "column with whole chats; rows without it have data.prompt_key and response_key"
    )
    response_key: str = key("response", "column with the response to the prompt")
    tools_key: str = key("tools", "column with the tools that a chat may call")
    format_response: str | None = key(None, "Jinja file that turns a row into the response's text")
    train_on: str = key("all", "which of the assistant's turns are learned", choices=("all", "last"))
    batch_size: int | None = key(None, "rows per update; null = data.rollout_batch_size", least=1, most=10_000_000)
