"""A decoder by fused kernels, on the parameters of the model's own modules.

Between two matrix products of a decoder lie a dozen small operations, each a kernel that reads and writes everything
once. Here each such stretch is one kernel. The same lines train, prefill and decode, so that the learner and the
sampler compute alike. Whatever is read from the modules is checked against them, layer by layer, before it is used.
"""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from typing import Any
from weakref import ref

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from whet.model.attention import Attention, packed_attention_for
from whet.model.blocks import attention_input, attention_input_to_pages, final_norm, rms_norm
from whet.model.feed_forward import feed_forward
from whet.model.low_rank import projected
from whet.model.mixture import mixture
from whet.model.modality import as_batch
from whet.model.paged import PagedAttention
from whet.model.pass_modes import offloading_of, recompute_contexts
from whet.model.routing import Replay, Routing
from whet.model.structure import Layer, Structure
from whet.model.vision import Embedded

Rope = tuple[Tensor, Tensor]


class FusedDecoder:
    """Hidden states of a packed row of tokens, as the model's own forward pass would give them."""

    def __init__(self, model: PreTrainedModel, structure: Structure) -> None:
        self._model, self._structure = ref(model), structure
        # Of each layer, the number of layers with experts before it.
        self._mixtures = list(accumulate((layer.gated is None for layer in structure.layers), initial=0))
        self.recompute_mlp = False  # project gate and up again in the backward pass instead of keeping them

    def hidden_states(
        self,
        ids_N: Tensor,
        positions: Tensor,
        how: Attention,
        embedded: Embedded | None = None,
        routing: Routing | None = None,
    ) -> Tensor:
        """Last hidden states (N, H); positions are (N,) or (3, N), `embedded` goes before ids."""
        structure = self._structure
        delta: Tensor = structure.embedding(ids_N) if embedded is None else embedded.tokens_NH
        if structure.embedding_scale != 1.0:
            delta = delta * torch.tensor(structure.embedding_scale, dtype=delta.dtype)
        ropes = self._ropes(delta, positions)
        residual: Tensor | None = None
        model = self._model()
        recompute = model is not None and model.is_gradient_checkpointing and torch.is_grad_enabled()
        for index, layer in enumerate(structure.layers):
            given: Any = (index, layer, delta, residual, ropes[layer.rope], how, routing)
            if recompute and model is not None:
                contexts = partial(recompute_contexts, model)
                with offloading_of(model):
                    delta, residual = checkpoint(self._layer, *given, use_reentrant=False, context_fn=contexts)
            else:
                delta, residual = self._layer(*given)
            if embedded is not None and index < len(embedded.deep):
                delta = delta.index_add(0, embedded.rows, embedded.deep[index])
        assert residual is not None
        return final_norm(delta, residual, structure.layers[0].norm(structure.final_norm))

    def _ropes(self, like: Tensor, positions: Tensor) -> dict[str | None, Rope]:
        """cos and sin (N, D) of each kind of rotary embedding that the model has."""
        ropes = {}
        if self._structure.mrope and positions.dim() == 1:
            positions = positions.expand(3, -1)
        for kind in self._structure.ropes:
            typed = () if kind is None else (kind,)
            cos, sin = self._structure.rotary(like[None], as_batch(positions), *typed)
            ropes[kind] = (cos[0], sin[0])
        return ropes

    def _layer(
        self,
        index: int,
        layer: Layer,
        delta: Tensor,
        residual: Tensor | None,
        rope: Rope,
        how: Attention,
        routing: Routing | None,
    ) -> tuple[Tensor, Tensor]:
        """Return the layer's output and the residual stream it is added to; with gradients where they are wanted."""
        given = self._attention_input(layer, delta, residual, rope)
        if isinstance(how, PagedAttention):  # decoding: keys and values go straight to the cache
            keys, values = how.pages(index)
            q, stream = attention_input_to_pages(**given, keys=keys, values=values, slots_N=how.slots_B)
            out = how.read(index, q, layer.scale, layer.window)
        else:
            q, k, v, stream = attention_input(**given)
            q_HND, k_HND, v_HND = (x.transpose(0, 1) for x in (q, k, v))
            out = how.attend(index, q_HND, k_HND, v_HND, layer.scale, layer.window)
        delta = projected(out.flatten(1), layer.o)
        if layer.attention_out_norm is not None:
            delta = rms_norm(delta, layer.norm(layer.attention_out_norm))
        norm, how_far = layer.norm(layer.mlp_norm), (self._structure.activation, self.recompute_mlp)
        if layer.gated is None:
            told = None if routing is None else (routing, self._mixtures[index])
            delta, stream = mixture(delta, stream, norm, layer.experts(), *how_far, told)
        else:
            gate, up, down = (each.weight for each in layer.gated)
            adapters = layer.adapters("gate", "up", "down")
            delta, stream = feed_forward(delta, stream, norm, gate, up, down, *how_far, adapters)
        if layer.mlp_out_norm is not None:
            delta = rms_norm(delta, layer.norm(layer.mlp_out_norm))
        return delta, stream

    def _attention_input(self, layer: Layer, delta: Tensor, residual: Tensor | None, rope: Rope) -> dict[str, Any]:
        """The arguments that `attention_input` and `attention_input_to_pages` share."""
        return {
            "delta_NH": delta,
            "residual_NH": residual,
            "norm": layer.norm(layer.attention_norm),
            "weights": (layer.q.weight, layer.k.weight, layer.v.weight),
            "biases": None if layer.q.bias is None else (layer.q.bias, layer.k.bias, layer.v.bias),
            "rope": rope,
            "heads": self._structure.heads,
            "kv_heads": self._structure.kv_heads,
            "qk_norm": layer.qk_norm,
            "adapters": layer.adapters("q", "k", "v"),
        }

    @torch.no_grad()
    def differs(self) -> float:
        """The largest difference of a layer's contribution from that of the model's own module, relative to it."""
        shown = self._structure.shown
        ropes = self._ropes(shown.inputs[0], shown.positions)
        how = packed_attention_for(shown.segments, shown.ids_N.device)
        replay = Replay(torch.stack(shown.experts, 1)) if shown.experts else None  # ties may be decided otherwise
        worst = 0.0
        for index, layer in enumerate(self._structure.layers):
            before, after = shown.inputs[index].float(), shown.outputs[index].float()
            delta, stream = self._layer(index, layer, shown.inputs[index], None, ropes[layer.rope], how, replay)
            gap = (delta.float() + stream.float() - after).norm() / (after - before).norm()
            worst = max(worst, float(gap))
        return worst
