"""Local HTTP servers with the documented APIs of SGLang and trtllm-serve, and a real tiny model behind them.

They are strict where the real ones are: unknown fields, a wrong key or a request to a server that sleeps are refused.
"""

from __future__ import annotations

import base64
import copy
import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from PIL import Image
from safetensors.torch import load_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from whet.model.load import load_model
from whet.model.processor import Processor
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.engine import NativeEngine
from whet.types import Media, Prompt, Sample

Answer = tuple[int, Any]
# sglang/srt/sampling/sampling_params.py: what a caller may set
SGLANG_PARAMS = {
    *("max_new_tokens", "stop", "stop_token_ids", "stop_regex", "temperature", "top_p", "top_k", "min_p"),
    *("frequency_penalty", "presence_penalty", "repetition_penalty", "min_new_tokens", "n", "json_schema", "regex"),
    *("ebnf", "structural_tag", "ignore_eos", "skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim"),
    *("custom_params", "stream_interval", "logit_bias", "sampling_seed"),
}
# tensorrt_llm/serve/openai_protocol.py, CompletionRequest: other fields are forbidden
TRTLLM_FIELDS = {
    *("model", "prompt", "best_of", "echo", "frequency_penalty", "logit_bias", "logprobs", "max_tokens", "n", "seed"),
    *("presence_penalty", "stop", "stream", "stream_options", "suffix", "temperature", "top_p", "user", "top_k"),
    *("lora_request", "prompt_ignore_length", "use_beam_search", "top_p_min", "min_p", "repetition_penalty"),
    *("length_penalty", "early_stopping", "stop_token_ids", "include_stop_str_in_output", "ignore_eos", "min_tokens"),
    *("skip_special_tokens", "spaces_between_special_tokens", "truncate_prompt_tokens", "return_context_logits"),
    *("detokenize", "add_special_tokens", "response_format", "disaggregated_params"),
}


class StandIn:
    """A server on a free port of this machine; each request is noted in `calls`."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, token: str | None = None) -> None:
        self.model, self.tokenizer, self.token = model, tokenizer, token
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.go_on = threading.Event()  # cleared, requests for responses wait
        self.go_on.set()
        self.broken_answers = 0  # how many connections to drop half-way
        self.at_once = self.most_at_once = 0
        self._using = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def paths(self) -> list[str]:
        return [path for path, _ in self.calls]

    def bodies(self, path: str) -> list[dict[str, Any]]:
        return [body for called, body in self.calls if called == path]

    def close(self) -> None:
        self.go_on.set()
        self._http.shutdown()
        self._http.server_close()

    def answer(self, method: str, path: str, body: dict[str, Any]) -> Answer:
        raise NotImplementedError

    def respond(self, ids: list[int], params: SamplingParams, ends: list[int], media: Media | None = None) -> Sample:
        """A response of the model, one at a time."""
        with self._counted():
            self.go_on.wait(20)
            with self._using:
                engine = NativeEngine(self.model, self.tokenizer, frozenset(ends))
                return engine.generate([Prompt("", ids, "", media=media)], params)[0]

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            yield
        finally:
            self.at_once -= 1

    def _handler(stand_in) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer({})

            def do_POST(self) -> None:
                self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"])) or "{}"))

            def _answer(self, body: dict[str, Any]) -> None:
                stand_in.calls.append((self.path, body))
                if stand_in.token and self.headers["Authorization"] != f"Bearer {stand_in.token}":
                    status, content = 401, {"error": "Unauthorized"}
                else:
                    status, content = stand_in.answer(self.command, self.path, body)
                data = b"" if content is None else json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if stand_in.broken_answers > 0:
                    stand_in.broken_answers -= 1
                    data = data[: len(data) // 2]
                self.wfile.write(data)

            def log_message(self, *_args: object) -> None:
                pass

        return Handler


class SGLangStandIn(StandIn):
    """`python -m sglang.launch_server` as far as whet uses it."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        token: str | None = None,
        processor: Processor | None = None,
    ) -> None:
        """`processor` is that of a model that sees."""
        super().__init__(model, tokenizer, token)
        self.weight_version, self.asleep, self.processor = "default", False, processor
        self.first = copy.deepcopy(model.state_dict())

    def restart(self) -> None:
        """What a supervisor does: the same command, so the weights of its start."""
        self.model.load_state_dict(self.first)
        self.weight_version, self.asleep = "default", False

    def answer(self, method: str, path: str, body: dict[str, Any]) -> Answer:
        match method, path:
            case "GET", "/health":
                return 200, None
            case "GET", "/model_info":
                return 200, {"model_path": "tiny", "is_generation": True, "weight_version": self.weight_version}
            case "POST", "/generate":
                return self._generate(body)
            case "POST", "/update_weights_from_disk":
                return self._update(body)
            case "POST", "/release_memory_occupation":
                return self._sleep(body, True)
            case "POST", "/resume_memory_occupation":
                return self._sleep(body, False)
            case "POST", "/abort_request":
                return 200, None
        return 404, {"detail": "Not Found"}

    def _generate(self, body: dict[str, Any]) -> Answer:
        given = body["sampling_params"]
        if unknown := given.keys() - SGLANG_PARAMS:
            return 400, {"error": {"message": f"Unexpected keyword argument {unknown}"}}
        if self.asleep:
            return 500, {"error": {"message": "no memory for the cache"}}
        if max(body["input_ids"]) >= self.model.config.get_text_config().vocab_size:
            return 400, {"error": {"message": "The input_ids contain values greater than the vocab size"}}
        ids, media = self._read(body)
        sample = self.respond(
            ids,
            SamplingParams(
                temperature=given["temperature"],
                top_p=given["top_p"],
                top_k=given["top_k"],
                min_p=given["min_p"],
                max_tokens=given["max_new_tokens"],
                stop=tuple(given["stop"]),
                ignore_eos=given["ignore_eos"],
                seed=given["sampling_seed"],
            ),
            given["stop_token_ids"],
            media,
        )
        length = {"type": "length", "length": len(sample.ids)}
        meta = {
            "id": body["rid"],
            "finish_reason": length if sample.finish == "length" else {"type": "stop", "matched": sample.ids[-1]},
            "prompt_tokens": len(ids),
            "weight_version": self.weight_version,
            "completion_tokens": len(sample.ids),
            "cached_tokens": 0,
        }
        if body.get("return_logprob"):
            meta["output_token_logprobs"] = [[p, t, None] for p, t in zip(sample.log_probs, sample.ids)]
        return 200, {"text": self.tokenizer.decode(sample.ids), "output_ids": sample.ids, "meta_info": meta}

    def _read(self, body: dict[str, Any]) -> tuple[list[int], Media | None]:
        """A prompt with images is read as text again, and the processor expands it (multimodal/processors/)."""
        if not body.get("image_data"):
            return body["input_ids"], None
        assert self.processor is not None
        images = [Image.open(io.BytesIO(base64.b64decode(each))) for each in body["image_data"]]
        images = [image.resize(self.processor.target_size(image.size)) for image in images]
        text = self.tokenizer.decode(body["input_ids"])
        ids, inputs = self.processor.read(text, images, [], [], special=False)
        return ids, Media(images=images, inputs=inputs)

    def _update(self, body: dict[str, Any]) -> Answer:
        folder = Path(body["model_path"])
        try:
            json.loads((folder / "config.json").read_text())
            places = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
            tensors = {name: t for file in set(places.values()) for name, t in load_file(folder / file).items()}
            if self.processor is not None:  # names in the folder of a model that sees are not those of its modules
                tensors = load_model(str(folder)).state_dict()
            with self._using:
                missing, unknown = self.model.load_state_dict(tensors, strict=False)
            if unknown or set(missing) - set(self.model.all_tied_weights_keys):
                raise RuntimeError(f"missing {missing}, unknown {unknown}")
        except (OSError, RuntimeError) as error:
            return 400, {"success": False, "message": f"Failed to update weights: {error}", "num_paused_requests": 0}
        self.weight_version = body.get("weight_version") or self.weight_version
        return 200, {"success": True, "message": "Succeeded to update model weights.", "num_paused_requests": 0}

    def _sleep(self, body: dict[str, Any], asleep: bool) -> Answer:
        if body.get("tags") != ["kv_cache"] or self.asleep == asleep or self.at_once:
            return 500, {"error": "assertion failed"}
        self.asleep = asleep
        return 200, None


class TrtllmStandIn(StandIn):
    """`trtllm-serve` as far as whet uses it."""

    served = "tiny"
    with_ids = True  # versions before token ids were in the answer lack them

    def answer(self, method: str, path: str, body: dict[str, Any]) -> Answer:
        match method, path:
            case "GET", "/health":
                return 200, None
            case "GET", "/v1/models":
                return 200, {"object": "list", "data": [{"id": self.served, "object": "model"}]}
            case "POST", "/v1/completions":
                return self._complete(body)
        return 404, {"detail": "Not Found"}

    def _complete(self, body: dict[str, Any]) -> Answer:
        if unknown := body.keys() - TRTLLM_FIELDS:
            return 400, {"object": "error", "message": f"Extra inputs are not permitted: {unknown}"}
        sample = self.respond(
            body["prompt"],
            SamplingParams(
                temperature=body["temperature"],
                top_p=body["top_p"],
                top_k=body["top_k"] or -1,
                min_p=body["min_p"],
                max_tokens=body["max_tokens"],
                ignore_eos=body["ignore_eos"],
                seed=body["seed"],
            ),  # stop strings are tokenized there, and often pass unseen: here always
            body["stop_token_ids"],
        )
        tokens = [self.tokenizer.decode([token]) for token in sample.ids]
        choice = {
            "index": 0,
            "text": "" if body.get("detokenize") is False else self.tokenizer.decode(sample.ids),
            "token_ids": sample.ids if self.with_ids and body.get("detokenize") is False else None,
            "logprobs": {"token_logprobs": sample.log_probs, "tokens": tokens} if body.get("logprobs") else None,
            "finish_reason": sample.finish,
            "stop_reason": None,
        }
        return 200, {"id": "cmpl-1", "object": "text_completion", "model": self.served, "choices": [choice]}
