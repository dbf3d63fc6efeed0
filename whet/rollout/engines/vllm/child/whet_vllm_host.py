"""The loop around vLLM's engine: read requests from a socket, step, write what finished, or all that was added.

Requests join and leave between any two steps. Weights are exchanged when nothing is being decoded. A frame carries as
many requests, or finished samples, as there are at that moment.
"""

from __future__ import annotations

import contextlib
import gc
import queue
import socket
import threading
import traceback
from array import array
from collections.abc import Callable
from typing import Any

from whet_vllm_media import MediaReader
from whet_vllm_wire import receive, send

_DRAIN_STEPS = 16  # more than vLLM ever has in flight
Frame = tuple[dict[str, Any], bytearray]


class Host:
    """One vLLM engine, and the requests inside it."""

    def __init__(self, arguments: dict[str, Any], reply: Callable[..., None]) -> None:
        from vllm import EngineArgs, LLMEngine
        from vllm.platforms import current_platform

        self._can_sleep = current_platform.is_sleep_mode_available()
        arguments["enable_sleep_mode"] = self._can_sleep
        if "mm_processor_cache_gb" in arguments and hasattr(EngineArgs, "mm_device_do_normalize"):
            arguments["mm_device_do_normalize"] = False  # newer ones would normalize the trainer's pixel values again
        self._engine = LLMEngine.from_engine_args(EngineArgs(**arguments))
        if current_platform.is_cpu():
            _check_heads(self._engine.vllm_config.model_config.get_head_size())
        self._media: MediaReader | None = None  # once a prompt shows something
        self._reply = reply
        self._version: int | None = None  # of the weights: none until some are taken
        self._asleep: set[str] = set()
        self._versions: dict[str, int] = {}  # of the weights that a request is being written with

    @property
    def busy(self) -> bool:
        """True if a step would do anything."""
        return bool(self._versions)

    def add(self, message: dict[str, Any], body: bytearray) -> None:
        """Take requests in: [key, which prompt, seed] of each; one that vLLM refuses costs nobody else anything.

        A frame with images or videos is about one prompt.
        """
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        version, refused = message["version"], {}
        if version != self._version:
            words = f"asked for version {version} of the weights, holds {self._version}"
            self._reply({"refused": {key: words for key, _, _ in message["requests"]}})
            return
        self._wake("weights", "kv_cache")
        options = message["params"]
        kind = RequestOutputKind.DELTA if message["stream"] else RequestOutputKind.FINAL_ONLY
        if "logit_bias" in options:
            options["logit_bias"] = {int(token): bias for token, bias in options["logit_bias"].items()}
        shown = "shown" in message
        prompts: list[Any] = [None if shown else {"prompt_token_ids": ids} for ids in message["prompts"]]
        for key, which, seed in message["requests"]:
            try:
                prompts[which] = prompts[which] or self._with_media(message, body)
                params = SamplingParams(**options, seed=seed, output_kind=kind)
                self._engine.add_request(key, prompts[which], params)
            except ValueError as error:
                refused[key] = str(error)
            else:
                self._versions[key] = version
        if refused:
            self._reply({"refused": refused})

    def _with_media(self, message: dict[str, Any], body: bytearray) -> dict[str, Any]:
        if self._media is None:
            self._media = MediaReader(self._engine.vllm_config.model_config)
        (ids,) = message["prompts"]
        return self._media.read(ids, message["shown"], body, message["version"])

    def abort(self, message: dict[str, Any]) -> None:
        """Let requests leave; nobody waits for them."""
        keys = [key for key in message["ids"] if self._versions.pop(key, None) is not None]
        self._engine.abort_request(keys)

    def load(self, message: dict[str, Any]) -> None:
        """Take new weights; whatever was computed with the old ones is forgotten. The cache may sleep on."""
        self._version = None
        self._wake("weights")
        arguments = (message["host"], message["port"], message["token"], str(message["version"]))
        received = self._engine.collective_rpc("whet_take_weights", args=arguments)
        self._forget()
        gc.collect()
        self._version = message["version"]
        self._reply({"did": "load", "received": received})

    def sleep(self, message: dict[str, Any]) -> None:
        """Give the device's memory back: at level 1 weights wait in host memory, at level 2 they are gone."""
        level = message["level"] if self._can_sleep and not self.busy and not self._asleep else 0
        if level:
            self._engine.sleep(level=level)
            self._asleep = {"weights", "kv_cache"}
        if level == 2:
            self._version = None
        self._reply({"did": "sleep", "level": level})

    def step(self) -> None:
        """Bring every request some tokens further; hand out those that ended, and what was added to streamed ones."""
        table, ids, log_probs = [], array("i"), array("f")
        for output in self._engine.step():
            if (version := self._versions.get(output.request_id)) is not None:
                if output.finished:
                    del self._versions[output.request_id]
                (written,) = output.outputs
                found = written.logprobs
                ids.extend(written.token_ids)
                log_probs.extend(found.logprobs[at] for at in found.start_indices[: len(written.token_ids)])
                table.append([output.request_id, len(written.token_ids), written.finish_reason, version])
        if table:
            self._reply({"written": table}, memoryview(ids.tobytes() + log_probs.tobytes()))

    def close(self) -> None:
        """End vLLM's own processes."""
        self._engine.engine_core.shutdown()

    def _forget(self) -> None:
        """Empty the prefix cache. What vLLM still has in flight for requests that ended may hold on to parts of it."""
        for _ in range(_DRAIN_STEPS):
            if self._engine.reset_prefix_cache():
                return
            self._engine.step()
        raise RuntimeError("vLLM did not forget keys and values of the old weights")

    def _wake(self, *tags: str) -> None:
        wanted = [tag for tag in tags if tag in self._asleep]
        if wanted:
            self._engine.wake_up(tags=wanted)
            self._asleep.difference_update(wanted)


def _check_heads(size: int) -> None:
    """Check head sizes; on a CPU vLLM itself fails at the first prompt, and ends."""
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    if not CPUAttentionBackend.supports_head_size(size):
        known = ", ".join(str(each) for each in CPUAttentionBackend.get_supported_head_sizes())
        raise ValueError(
            f"the model has attention heads of {size} elements, and vLLM on a CPU runs those of {known} only; "
            "set worker.rollout.name=native"
        )


def serve(connection: socket.socket, on_hangup: Callable[[], None]) -> bool:
    """Be an engine for whoever is at the other end, until it is closed; whether nothing failed.

    `on_hangup` is called, from another thread, when the other end is gone without a word.
    """
    try:
        first, _ = receive(connection)
        inbox: queue.SimpleQueue[Frame] = queue.SimpleQueue()
        threading.Thread(target=_read_into, args=(connection, inbox, on_hangup), daemon=True).start()
        host = Host(first["arguments"], lambda *frame: send(connection, *frame))
        send(connection, {"did": "start"})
        _loop(host, inbox)
        host.close()
        return True
    except (EOFError, ConnectionError):
        return False
    except BaseException as error:
        words = "".join(traceback.format_exception_only(error)).strip()
        traceback.print_exc()
        with contextlib.suppress(OSError):
            send(connection, {"failed": words})
        return False
    finally:
        connection.close()


def _loop(host: Host, inbox: queue.SimpleQueue[Frame]) -> None:
    while True:
        while not host.busy or not inbox.empty():
            message, body = inbox.get()
            match message["do"]:
                case "add":
                    host.add(message, body)
                case "abort":
                    host.abort(message)
                case "load":
                    host.load(message)
                case "sleep":
                    host.sleep(message)
                case "close":
                    return
        host.step()


def _read_into(connection: socket.socket, inbox: queue.SimpleQueue[Frame], on_hangup: Callable[[], None]) -> None:
    try:
        while True:
            message, body = receive(connection)
            inbox.put((message, body))
            if message["do"] == "close":
                return
    except (EOFError, OSError):
        inbox.put(({"do": "close"}, bytearray()))
        on_hangup()
