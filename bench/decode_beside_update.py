"""Decoding and updating on one GPU at once, against one after the other.

    python bench/decode_beside_update.py                      # Qwen3-1.7B's shape, random weights
    python bench/decode_beside_update.py --tiny --batches 4   # a tiny model on a CPU, to try the script

The learner updates on made-up samples while a thread decodes `--batches` sequences, on streams of the same priority,
with decoding preferred, or on parts of the GPU's processors (green contexts). For each way and batch:

1. `alone`: milliseconds of a token of the whole batch before and after, while nothing else runs; `whole` the same on
   all of the GPU;
2. `update` and `beside`: seconds of the update alone, and while decoding goes on;
3. `drawn`: tokens of the whole batch that were drawn beside the update;
4. `ratio`: beside / (update + drawn · whole). What took 1 one after the other takes this at once.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from ctypes import byref, c_int, c_uint, c_void_p
from typing import Any

import torch
from gpu_part import timed
from gpu_shapes import qwen3_1_7b, qwen3_tiny
from transformers import AutoModelForCausalLM, PreTrainedModel

from whet.config.schema.actor import ActorConfig
from whet.learn.learner import LocalLearner
from whet.learn.partition import Budget
from whet.model.fused import fuse
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.engine import NativeEngine
from whet.supervised.likelihood import NegativeLogLikelihood
from whet.types import Prompt, Sample

Way = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]  # streams of decoding and of the update


def main() -> None:
    """Measure every way with every batch, and print a line of JSON for each."""
    arguments = _arguments()
    cuda = torch.cuda.is_available() and not arguments.tiny
    model = _model(arguments.tiny, "cuda" if cuda else "cpu")
    samples = _samples(arguments.groups, arguments.tokens, model.config.vocab_size)
    learner = LocalLearner(model, ActorConfig(), 1.0, 1000, Budget(arguments.micro_batch, None, recompute=False))
    masks = [sample.mask for sample in samples]
    learn = lambda: learner.update(samples, NegativeLogLikelihood(masks, "token", 1), 1, len(samples))  # noqa: E731
    device = model.device.type
    for _ in range(2):
        timed(device, learn)
    update = statistics.median(timed(device, learn)[0] for _ in range(3))
    print(json.dumps({"device": str(model.device), "update": update, **vars(arguments)}), flush=True)
    for batch in arguments.batches:
        whole = 0.0  # milliseconds of a token, by the first way
        for name in ["streams", *(way for way in arguments.ways if way != "streams")] if cuda else ["streams"]:
            try:
                found = _both(model, batch, _way(name) if cuda else (nullcontext(), nullcontext()), learn, arguments)
            except (RuntimeError, OSError) as error:
                found = {"failed": f"{type(error).__name__}: {error}"[:300]}
            if "drawn" in found:
                whole = whole or found["alone"]
                found |= {"whole": whole, "ratio": found["beside"] / (update + found["drawn"] * whole / 1e3)}
            print(json.dumps({"way": name, "batch": batch, **found}), flush=True)


def _both(model: PreTrainedModel, batch: int, way: Way, learn: Callable[[], Any], arguments: Any) -> dict[str, Any]:
    decoding, updating = way
    decoder = Decoder(model, batch, decoding, arguments.longest)
    try:
        decoder.rate(arguments.seconds)  # graphs are captured
        before = decoder.rate(arguments.seconds)
        with updating:
            learn()
            begin = time.perf_counter()
            rounds = [timed(model.device.type, learn)[0] for _ in range(arguments.rounds)]
            end = time.perf_counter()
        drawn = decoder.drawn(begin, end) / arguments.rounds
        after = decoder.rate(arguments.seconds)
    finally:
        decoder.close()
    alone = (before + after) / 2
    return {"alone": 1e3 * alone, "beside": statistics.mean(rounds), "rounds": rounds, "drawn": drawn}


class Decoder:
    """A thread that decodes a batch all the time, and notes when each window of tokens was there."""

    def __init__(self, model: PreTrainedModel, batch: int, way: AbstractContextManager[Any], longest: int) -> None:
        self._engine = NativeEngine(model, None, frozenset(), batch, max_model_len=longest)  # type: ignore[arg-type]
        params = SamplingParams(n=batch, max_tokens=longest - 64, ignore_eos=True)
        self._request = self._engine.submit(Prompt("prompt", list(range(3, 67)), ""), params)
        self._way, self._stop, self._moments = way, threading.Event(), list[tuple[float, int]]()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._way:
            while not self._stop.is_set() and self._request.unfinished:
                self._engine.step()
                self._moments.append((time.perf_counter(), len(self._request.sequences[0].ids)))

    def drawn(self, begin: float, end: float) -> float:
        """Return how many tokens of each sequence were drawn between two moments, parts of a window included."""
        return self._at(end) - self._at(begin)

    def _at(self, moment: float) -> float:
        while not self._moments or self._moments[-1][0] < moment:
            if not self._thread.is_alive():
                raise RuntimeError("decoding ended: raise --longest")
            time.sleep(0.001)
        later = next(i for i, (at, _) in enumerate(self._moments) if at >= moment)
        (t0, n0), (t1, n1) = self._moments[max(0, later - 1)], self._moments[later]
        return n1 if t1 == t0 else n0 + (n1 - n0) * (moment - t0) / (t1 - t0)

    def rate(self, seconds: float) -> float:
        """Return the seconds of a token over so many seconds from now."""
        while not self._moments:
            if not self._thread.is_alive():
                raise RuntimeError("decoding failed")
            time.sleep(0.01)
        begin = time.perf_counter()
        time.sleep(seconds)
        return seconds / self.drawn(begin, begin + seconds)

    def close(self) -> None:
        """End the thread, and give the cache back."""
        self._stop.set()
        self._thread.join()
        self._engine.withdraw(self._request)
        self._engine.step()
        self._engine.release()


def _way(name: str) -> Way:
    """Return the streams of `streams`, `priority`, `greenN` (N processors decode), `greenN+` (and all update)."""
    if name == "streams":
        return torch.cuda.stream(torch.cuda.Stream()), nullcontext()
    if name == "priority":
        return torch.cuda.stream(torch.cuda.Stream(priority=-5)), nullcontext()
    few, rest = green_streams(int(name.removeprefix("green").removesuffix("+")))
    return torch.cuda.stream(few), nullcontext() if name.endswith("+") else torch.cuda.stream(rest)


def green_streams(processors: int) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    """Return a stream on this many of the device's processors and one on the others, by the driver's green contexts."""
    driver = ctypes.CDLL("libcuda.so.1")

    def call(function: str, *values: Any) -> None:
        if code := getattr(driver, function)(*values):
            raise RuntimeError(f"{function}: error {code}")

    device, whole, part, rest, groups = c_int(), *((c_uint * 64)() for _ in range(3)), c_uint(1)
    call("cuDeviceGet", byref(device), c_int(torch.cuda.current_device()))
    call("cuDeviceGetDevResource", device, byref(whole), c_int(1))  # CU_DEV_RESOURCE_TYPE_SM
    call("cuDevSmResourceSplitByCount", part, byref(groups), whole, rest, c_uint(0), c_uint(processors))
    streams = []
    for resource in (part, rest):
        description, context, stream = c_void_p(), c_void_p(), c_void_p()
        call("cuDevResourceGenerateDesc", byref(description), resource, c_uint(1))
        call("cuGreenCtxCreate", byref(context), description, device, c_uint(1))  # CU_GREEN_CTX_DEFAULT_STREAM
        call("cuGreenCtxStreamCreate", byref(stream), context, c_uint(1), c_int(0))  # CU_STREAM_NON_BLOCKING
        streams.append(torch.cuda.ExternalStream(stream.value or 0))
    return streams[0], streams[1]


def _model(tiny: bool, device: str) -> PreTrainedModel:
    torch.manual_seed(0)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    with torch.device(device):
        config = qwen3_tiny() if tiny else qwen3_1_7b()
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="whet")
    fuse(model)
    return model


def _samples(groups: int, tokens: int, vocabulary: int) -> list[Sample]:
    found = []
    for group in range(groups):
        prompt = Prompt(str(group), [3 + (group * i) % (vocabulary - 3) for i in range(64)], "")
        ids = [[3 + (i * (k + 7) + group) % (vocabulary - 3) for i in range(tokens)] for k in range(8)]
        found += [Sample.written(prompt, each, [0.0] * tokens, "stop", index=k) for k, each in enumerate(ids)]
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--batches", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--ways", nargs="+", default=["streams", "priority", "green16", "green32", "green64"])
    parser.add_argument("--groups", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=256, help="of a response in the update")
    parser.add_argument("--micro-batch", type=int, default=16384)
    parser.add_argument("--longest", type=int, default=4096, help="tokens of a decoded sequence")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
