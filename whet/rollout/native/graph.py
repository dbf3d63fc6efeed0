"""Decoding on a CUDA device: a step is one replay of a captured graph, and the host looks every few tokens.

Decoding a small model one kernel at a time is bound by the host that launches them. Here the forward pass, sampling
and the bookkeeping of one token are captured once for each size of batch and reach of attention, and replayed; the
host reads tokens, checks stops and refills slots after `LOOKAHEAD` of them. What is drawn past a response's end is
dropped. Requests with top-k, top-p or min-p, or with different temperatures, take the plain path of `ModelRunner`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from whet.model.load import head_of, hidden_states
from whet.rollout.native.attention import DecodeAttention
from whet.rollout.native.runner import Drawn, ModelRunner
from whet.rollout.native.sampler import sample_alike
from whet.rollout.native.sequence import Sequence
from whet.rollout.uniforms import uniforms

LOOKAHEAD = 8  # tokens between two looks of the host
REACH = 128  # attention reaches a multiple of so many tokens
KEEP = 0.2  # share of the device's memory that the cache may hold on to between rollouts


class GraphRunner(ModelRunner):
    """The same model and cache, replayed."""

    def __init__(self, model: PreTrainedModel, max_num_seqs: int) -> None:
        super().__init__(model)
        self._slots = max_num_seqs
        self._graphs: dict[tuple[int, int, float], torch.cuda.CUDAGraph] = {}
        self._pool: Any = None  # torch's handle of the memory that the graphs share
        self._inputs = torch.zeros(4, max_num_seqs, dtype=torch.int64, device=self.device)
        self._tokens = torch.zeros(LOOKAHEAD, max_num_seqs, dtype=torch.int64, device=self.device)
        self._log_probs = torch.zeros(LOOKAHEAD, max_num_seqs, device=self.device)
        self._row = torch.zeros(1, dtype=torch.int64, device=self.device)

    def decode(self, running: list[Sequence]) -> list[Drawn]:
        """The next `LOOKAHEAD` tokens of every running sequence."""
        params = [s.request.params for s in running]
        temperature = params[0].temperature
        if any(p.filters or p.temperature != temperature for p in params):
            return super().decode(running)
        B, reach = len(running), _up(max(s.length for s in running) + LOOKAHEAD, REACH)
        longest = max(len(s.request.prompt.ids) + s.request.params.max_tokens for s in running)
        self._reserve(_up(longest + LOOKAHEAD, REACH))
        rows = [(s.ids[-1], s.length - 1, s.key, len(s.ids)) for s in running]
        self._inputs.zero_()
        self._inputs[:, :B] = torch.tensor(rows).t().to(self.device)
        self._row.zero_()
        graph = self._graph(_bucket(B, self._slots), reach, temperature)
        for _ in range(LOOKAHEAD):
            graph.replay()
        tokens, log_probs = self._tokens[:, :B].tolist(), self._log_probs[:, :B].tolist()
        return [Drawn(*drawn) for drawn in zip(tokens, log_probs)]

    def release(self) -> None:
        """Give the cache back where it takes much of the device; else keep it, and the graphs that point into it."""
        total = torch.cuda.get_device_properties(self.device).total_memory
        if self.cache.data.nbytes > KEEP * total:
            self._forget()
            self.cache.release()

    def _reserve(self, tokens: int) -> None:
        before = self.cache.data.data_ptr()
        self.cache.reserve(self._slots, tokens)
        if self.cache.data.data_ptr() != before:
            self._forget()

    def _forget(self) -> None:
        """Drop the graphs, which hold addresses of a cache that is no more, and the memory pool they shared."""
        self._graphs.clear()
        self._pool = None

    def _graph(self, B: int, reach: int, temperature: float) -> torch.cuda.CUDAGraph:
        key = (B, reach, temperature)
        if key not in self._graphs:
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            inputs = self._inputs.clone()
            stream = torch.cuda.Stream(self.device)
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):  # what libraries set up lazily must not be captured
                self._one_token(B, reach, temperature)
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool):
                self._one_token(B, reach, temperature)
            self._graphs[key] = graph
            self._inputs.copy_(inputs)
            self._row.zero_()
        return self._graphs[key]

    def _one_token(self, B: int, reach: int, temperature: float) -> None:
        """Forward, sample, write down, move on; everything stays on the device."""
        ids, positions, keys, written = self._inputs[:, :B]
        hidden_BH = hidden_states(self.model, ids, positions, DecodeAttention(self.cache, positions, reach))
        logits_BV: Tensor = head_of(self.model).logits(hidden_BH)
        tokens, log_probs = sample_alike(logits_BV, temperature, uniforms(keys, written))
        self._tokens[:, :B].index_copy_(0, self._row, tokens[None])
        self._log_probs[:, :B].index_copy_(0, self._row, log_probs[None])
        ids.copy_(tokens)
        positions += 1
        written += 1
        self._row += 1


def _up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def _bucket(B: int, most: int) -> int:
    """The batch size that B is rounded up to: powers of two up to 64, multiples of 64 beyond."""
    size = 1 << (B - 1).bit_length() if B <= 64 else _up(B, 64)
    return min(size, most)
