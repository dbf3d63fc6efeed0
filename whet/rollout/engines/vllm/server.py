"""vLLM behind its OpenAI-compatible server: one that is started here on loopback, or one that is up already.

Samples go through /v1/completions. Weights go straight from the trainer to vLLM's workers, which are told by
/collective_rpc where to fetch them: an endpoint of vLLM's development mode, with whet's extension in the workers.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from transformers import PretrainedConfig, PreTrainedTokenizerBase

from whet.errors import UserError
from whet.rollout.engine import EngineGoneError, SamplingParams, Weights
from whet.rollout.engines.server.client import KEY, Client, HttpError
from whet.rollout.engines.server.completions import CompletionsEngine
from whet.rollout.engines.server.engine import Written
from whet.rollout.engines.vllm.sender import WeightSender
from whet.rollout.engines.vllm.settings import CHILD, EXTENSION, Settings, write_folder
from whet.rollout.engines.vllm.spec import EXTERNAL, OWN_SERVER
from whet.system import groups, listeners
from whet.system.processes import end_group, ending, last_output
from whet.types import Prompt

_POLL_SECONDS = 0.5


class VLLMServerEngine(CompletionsEngine):
    """A vLLM server that follows training; one that restarted holds no version and is not used."""

    name = "vllm"
    capabilities = EXTERNAL
    token_ids: ClassVar = {"return_token_ids": True}

    def load_weights(self, weights: Weights, version: int) -> None:
        """Have every worker of the server fetch these weights, and see that all of them did."""
        if not self.idle:
            raise RuntimeError("samples are being written with the weights to be replaced")
        self.version = version
        workers = len(self.run(self._held()))
        with WeightSender(weights, version, workers, self._address_here()) as sender:
            try:
                received = self.run(self._rpc("whet_take_weights", list(sender.offer().values())))
            except UserError:
                if sender.error is not None:
                    raise sender.error from None
                raise
            sender.check(received)
        self.run(self.client.post("/reset_prefix_cache", {}))

    async def ready(self) -> None:
        """See that every worker holds the learner's version."""
        await super().ready()
        held = await self._held()
        if set(held) != {str(self.version)}:
            shown = ", ".join(sorted(each or "none of this run's" for each in set(held)))
            raise UserError(
                f"{KEY}={self.client.address}: the server's weights are version {shown}, the learner's {self.version}; "
                "it was restarted, or another run uses it. Start the run again: it goes on from its last checkpoint"
            )

    async def _held(self) -> list[str]:
        """The version of the weights in each worker."""
        return await self._rpc("whet_weights_version", [])

    async def _rpc(self, method: str, arguments: list[str]) -> Any:
        try:
            answer = await self.client.post("/collective_rpc", {"method": method, "args": arguments})
        except HttpError as error:
            if error.status not in (404, 405):
                raise
            raise UserError(
                f"{KEY}={self.client.address}: this server cannot be given weights. Start it with the variables "
                f"VLLM_SERVER_DEV_MODE=1 and PYTHONPATH={CHILD}, and with --worker-extension-cls {EXTENSION} "
                "--logprobs-mode processed_logprobs"
            ) from None
        return answer["results"]

    def _address_here(self) -> str:
        """This machine's address as the server sees it."""
        parts = urlsplit(self.client.address)
        with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=30) as connection:
            return connection.getsockname()[0]


class OwnServerEngine(VLLMServerEngine):
    """A server that is started here, on loopback with a random API key, and ended with the run."""

    capabilities = OWN_SERVER

    def __init__(
        self,
        settings: Settings,
        config: PretrainedConfig,
        tokenizer: PreTrainedTokenizerBase,
        end_ids: frozenset[int],
        log: Path | None = None,
    ) -> None:
        settings.check()
        self._folder = tempfile.TemporaryDirectory(prefix="whet-vllm-")
        folder = Path(self._folder.name)
        write_folder(folder / "model", config, tokenizer, settings.processor_from)
        self._log = log or folder / "server.log"
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        token = secrets.token_hex(16)
        # The engine of a server is a process of its own, and the key is no argument that `ps` would show.
        more = {"VLLM_API_KEY": token, "VLLM_SERVER_DEV_MODE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
        where = ["--host", "127.0.0.1", "--port", str(port)]
        flags = _flags(settings.arguments(folder / "model", config))
        lifeline, self._lifeline = os.pipe()  # its closing, also by our death, ends the server
        with open(self._log, "ab") as sink:
            self.process = subprocess.Popen(
                [settings.interpreter, str(CHILD / "whet_vllm_server.py"), str(lifeline), *where, *flags],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                pass_fds=(lifeline,),
                env=settings.environment() | more,
                start_new_session=True,
            )
        os.close(lifeline)
        self._leader = groups.leader_of(self.process.pid)
        client = Client(f"http://127.0.0.1:{port}", token)
        super().__init__(client, tokenizer, end_ids, settings.max_num_seqs)
        try:
            self._wait_until_up(port)
        except BaseException:
            self.close()
            raise

    @property
    def failure(self) -> str | None:
        """Return how the server ended, if it did by itself."""
        if self.process.poll() is None:
            return None
        what = f"worker.rollout.mode=server: the vLLM server (pid {self.process.pid}) {ending(self.process)}"
        return f"{what}. Its last words, from {self._log}:\n{last_output(self._log)}"

    async def ready(self) -> None:
        """Do as for any server; name one that died."""
        try:
            await super().ready()
        except UserError:
            self._raise_if_dead()
            raise

    async def write(self, prompt: Prompt, params: SamplingParams, seed: int) -> Written:
        """Do as for any server; name one that died."""
        try:
            return await super().write(prompt, params, seed)
        except UserError:
            self._raise_if_dead()
            raise

    def close(self) -> None:
        """End the server and everything it started."""
        super().close()
        self.process.terminate()
        end_group(self.process, self._leader)
        os.close(self._lifeline)
        self._folder.cleanup()

    def _wait_until_up(self, port: int) -> None:
        while True:
            self._raise_if_dead()
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()  # it listens once its engine is up
                if listeners.is_foreign(port):  # it would be told the key
                    raise UserError(f"worker.rollout.mode=server: another user took port {port}; start the run again")
                self.run(self.client.get("/health"))
                return
            except OSError:
                time.sleep(_POLL_SECONDS)

    def _raise_if_dead(self) -> None:
        if (words := self.failure) is not None:
            raise EngineGoneError(words) from None


def _flags(arguments: dict[str, Any]) -> list[str]:
    """Engine arguments as the server's command line writes them."""
    flags: list[str] = []
    for name, value in arguments.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            flags += [f"--{flag}", json.dumps(value) if isinstance(value, dict) else str(value)]
    return flags
