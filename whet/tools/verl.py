"""verl's tool YAML, its `BaseTool` subclasses and its interactions (a simulated user); verl itself is not needed."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from whet.errors import UserError
from whet.tools.loading import imported
from whet.tools.protocol import PlainTool, Tool, ToolResult


class Schema(dict[str, Any]):
    """A schema that can be read as verl's own objects are: `schema.function.name`, `schema.model_dump()`."""

    def __getattr__(self, name: str) -> Any:
        try:
            value = self[name]
        except KeyError:
            raise AttributeError(name) from None
        return Schema(value) if isinstance(value, dict) else value

    def model_dump(self, **_: Any) -> dict[str, Any]:
        """Return a plain dict."""
        return dict(self)


class VerlTool(PlainTool):
    """A `BaseTool`: created once for each sample, which its instance id names."""

    def __init__(self, tool: Any, schema: dict[str, Any]) -> None:
        self._tool, self.schema = tool, schema
        self.name = schema["function"]["name"]
        self._ids: dict[str, Any] = {}

    async def create(self, sample_id: str, **row_kwargs: Any) -> None:
        """Create an instance; verl hands the row's settings over as one keyword, older tools name them."""
        known = inspect.signature(self._tool.create).parameters
        given = {name: value for name, value in row_kwargs.items() if name in known}
        takes_any = any(each.kind is each.VAR_KEYWORD for each in known.values())
        if row_kwargs and (takes_any or "create_kwargs" in known):
            given["create_kwargs"] = row_kwargs
        made = await _awaited(self._tool.create(sample_id, **given))
        self._ids[sample_id] = made[0] if isinstance(made, tuple) else made or sample_id

    async def execute(self, sample_id: str, arguments: dict[str, Any]) -> ToolResult:
        """Run a call; the result is (response, reward, metrics)."""
        made = await _awaited(self._tool.execute(self._ids.get(sample_id, sample_id), arguments))
        response, reward = (made[0], made[1] if len(made) > 1 else 0.0) if isinstance(made, tuple) else (made, 0.0)
        text = response.get("text") if isinstance(response, dict) else getattr(response, "text", response)
        images = response.get("image") if isinstance(response, dict) else getattr(response, "image", None)
        return ToolResult("" if text is None else str(text), list(images or []), float(reward or 0.0))

    async def release(self, sample_id: str) -> None:
        """Release the instance."""
        await _awaited(self._tool.release(self._ids.pop(sample_id, sample_id)))


def load_config(path: Path) -> list[Tool]:
    """Return the tools of a YAML: `tools: [{class_name, config, tool_schema}]`."""
    tools: list[Tool] = []
    for number, entry in enumerate(_entries(path, "tools"), start=1):
        label = f"{path}: tool {number}"
        config = dict(entry.get("config") or {})
        if config.get("type") == "mcp":
            tools += _servers(entry, config, path, label)
            continue
        schema = entry.get("tool_schema")
        made = _make(entry, label, config, Schema(schema) if schema else None)
        own = schema or _schema_of(made, label)
        tools.append(VerlTool(made, own))
    return tools


def _servers(entry: dict[str, Any], config: dict[str, Any], path: Path, label: str) -> list[Tool]:
    """Return the tools of an entry of type mcp; its class is verl's own and not needed."""
    from whet.tools.mcp import START_SECONDS
    from whet.tools.mcp_tools import load_servers, read_servers

    settings = entry.get("mcp") or {}
    name = settings.get("mcp_servers_config_path")
    if not isinstance(name, str):
        raise UserError(f"{label}: mcp.mcp_servers_config_path must name a JSON file with mcpServers")
    beside = path.parent / name  # verl's own files name it from the working directory
    servers = read_servers(beside if beside.is_file() else Path(name))
    seconds = float(config.get("timeout") or START_SECONDS)
    return load_servers(servers, label, list(settings.get("tool_selected_list") or []), seconds)


class Interactions:
    """Simulated users of one YAML; a row names its own as `extra_info.interaction_kwargs.name`."""

    def __init__(self, users: dict[str, Any], label: str) -> None:
        self._users, self._label = users, label
        self._talking: dict[str, Any] = {}  # users by sample

    async def start_interaction(self, sample_id: str, **row: Any) -> None:
        """Begin a conversation."""
        user = self._talking[sample_id] = self._user(row)
        await _awaited(user.start_interaction(sample_id, **row))

    async def generate_response(self, sample_id: str, messages: list[Any], **row: Any) -> Any:
        """Answer a turn: (whether it is over, text, score, more)."""
        return await _awaited(self._talking[sample_id].generate_response(sample_id, messages, **row))

    async def finalize_interaction(self, sample_id: str) -> None:
        """End a conversation."""
        finalize = getattr(self._talking.pop(sample_id, None), "finalize_interaction", None)
        if callable(finalize):
            await _awaited(finalize(sample_id))

    def _user(self, row: dict[str, Any]) -> Any:
        name = row.get("name")
        if name is None and len(self._users) == 1:
            return next(iter(self._users.values()))
        if name not in self._users:
            known = ", ".join(self._users)
            raise UserError(f"{self._label}: extra_info.interaction_kwargs.name={name} is none of {known}")
        return self._users[name]


def load_interaction(path: Path) -> Interactions:
    """Return the simulated users of a YAML: `interaction: [{name, class_name, config}]`."""
    users: dict[str, Any] = {}
    for entry in _entries(path, "interaction"):
        made = _make(entry, f"{path}: interaction", dict(entry.get("config") or {}))
        methods = ("start_interaction", "generate_response")
        missing = [name for name in methods if not callable(getattr(made, name, None))]
        if missing:
            raise UserError(f"{path}: {entry['class_name']} has no method {', '.join(missing)}")
        usual = str(entry["class_name"]).rpartition(".")[2].removesuffix("Interaction").lower()  # as verl has it
        name = str(entry.get("name") or usual)
        if name in users:
            raise UserError(f"{path}: two interactions are called {name}; rename one")
        users[name] = made
    if not users:
        raise UserError(f"{path}: the list under interaction is empty")
    return Interactions(users, str(path))


def _entries(path: Path, key: str) -> list[dict[str, Any]]:
    if not path.is_file():
        raise UserError(f"there is no file {path}, which should hold a list of {key}")
    try:
        value = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except Exception as error:  # of YAML and of OmegaConf alike
        raise UserError(f"{path} cannot be read: {str(error)[:300]}") from error
    entries = value.get(key) if isinstance(value, dict) else None
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise UserError(f"{path}: expected a list under {key}")
    return entries  # type: ignore[return-value]


def _make(entry: dict[str, Any], label: str, *given: Any) -> Any:
    name = entry.get("class_name")
    if not isinstance(name, str) or "." not in name:
        raise UserError(f"{label}: class_name must be a dotted name such as package.module.Class")
    found = imported(name, label)
    try:
        return found(*given)
    except Exception as error:
        raise UserError(f"{label}: {name} cannot be made: {type(error).__name__}: {error}") from error


def _schema_of(tool: Any, label: str) -> dict[str, Any]:
    getter = getattr(tool, "get_openai_tool_schema", None)
    schema = getter() if callable(getter) else getattr(tool, "tool_schema", None)
    dump = getattr(schema, "model_dump", None)
    schema = dump(exclude_none=True) if callable(dump) else schema
    if not isinstance(schema, dict) or not isinstance(schema.get("function"), dict) or "name" not in schema["function"]:
        raise UserError(f"{label}: it needs a tool_schema, or get_openai_tool_schema() that returns one")
    return schema


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
