"""Vision-language models: where images lie in a row of tokens, the positions of tokens, what the decoder reads there.

The classes of Qwen2-VL, Qwen2.5-VL, Qwen3-VL and their kin (a tower called `visual`, M-RoPE positions by
`get_rope_index`) are run in pieces, so that one pass of the tower serves all images and videos of a row and the decoder
may be whet's fused one. Any other model with a vision encoder goes through its own forward.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, cast
from weakref import ref

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from whet.errors import UserError
from whet.model.gathering import sharded_modules
from whet.model.modality import IMAGE_IDS, VIDEO_IDS, as_batch, vision_of, vision_tower
from whet.types import Prompt

_PIXELS = (("pixel_values", "image_grid_thw"), ("pixel_values_videos", "video_grid_thw"))
TIMES = "second_per_grid_ts"  # which only positions are made of


def tower_blocks(model: PreTrainedModel) -> list[nn.Module]:
    """The layers of the vision tower of models that are run in pieces, where all ranks of a sharded one meet."""
    vision = vision_of(model)
    blocks = getattr(vision_tower(model), "blocks", None) if vision is not None and vision.in_pieces else None
    return list(blocks) if isinstance(blocks, nn.ModuleList) else []


@dataclass(frozen=True, slots=True)
class RowMedia:
    """Images and videos of a packed row, and which of its tokens stand for them."""

    inputs: dict[str, Tensor]  # the processor's tensors of all prompts of the row, in its order
    rows: Tensor  # (K,) indices of placeholder tokens in the row
    order: Tensor | None  # of the features of images, then videos, into the order of `rows`; None where it is theirs

    def between(self, start: int, stop: int) -> RowMedia:
        """The same for those tokens of the row alone; its images are whole, and the tower reads all of them."""
        (here,) = torch.where((self.rows >= start) & (self.rows < stop))
        return RowMedia(self.inputs, self.rows[here] - start, here if self.order is None else self.order[here])


@dataclass(frozen=True, slots=True)
class Embedded:
    """Input of the decoder's first layer, and what is added at visual tokens after each of the first layers."""

    tokens_NH: Tensor
    rows: Tensor
    deep: list[Tensor]  # (K, H) each: Qwen3-VL's DeepStack (Meng et al., 2024)


class Vision:
    """The vision side of one model."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model, config = ref(model), model.config
        base = cast(Any, model.base_model)
        self.in_pieces = all(hasattr(base, name) for name in ("visual", "language_model", "get_rope_index"))
        self.axes = 3 if self.in_pieces else 1  # rows of positions: M-RoPE has time, height and width
        self.image_id = _first(config, IMAGE_IDS)
        self.video_id = _first(config, VIDEO_IDS)
        self._merge = int(getattr(config.vision_config, "spatial_merge_size", 1))

    @property
    def _base(self) -> Any:
        model = self._model()
        assert model is not None, "whoever asks holds the model"
        return model.base_model

    @property
    def _is_sharded(self) -> bool:
        model = self._model()
        return model is not None and bool(sharded_modules(model))

    def check(self, prompt: Prompt) -> None:
        """A `UserError` where a prompt's placeholder tokens and its images do not belong together."""
        if prompt.ids and prompt.ids[-1] in (self.image_id, self.video_id):
            raise UserError(f"{prompt.uid}: a prompt cannot end with an image or a video: put text behind it")
        if not self.in_pieces:
            asked = inspect.signature(self._base.forward).parameters.keys() & {"token_type_ids", "mm_token_type_ids"}
            if prompt.media is not None and asked:  # Gemma 3, PaliGemma: packed rows have causal attention only
                kind = type(self._base).__name__
                raise UserError(f"{prompt.uid}: tokens of one image see each other in {kind}, which whet cannot do yet")
            return
        inputs = {} if prompt.media is None else prompt.media.inputs
        for token, (pixels, grid), what in zip((self.image_id, self.video_id), _PIXELS, ("image", "video")):
            tokens = 0 if token is None else prompt.ids.count(token)
            grids = inputs.get(grid)
            features = 0 if grids is None else int(grids.prod(-1).sum()) // self._merge**2
            if tokens != features or (pixels in inputs) != (grids is not None):
                raise UserError(
                    f"{prompt.uid}: {tokens} {what} tokens in the prompt, but the model would read {features} from its "
                    f"{what}s: is this the model's own processor?"
                )

    def positions(self, prompt: Prompt) -> tuple[np.ndarray, int]:
        """Positions (3, P) of a prompt's tokens, by the model's own rule, and that of the first response token.

        (1, P) where the model counts tokens.
        """
        P = len(prompt.ids)
        if prompt.media is None or not self.in_pieces:
            return np.arange(P)[None], P
        ids = torch.tensor([prompt.ids])
        rule = self._base.get_rope_index
        known = inspect.signature(rule).parameters
        given = {name: prompt.media.inputs.get(name) for name in ("image_grid_thw", "video_grid_thw", TIMES)}
        given["mm_token_type_ids"] = self.kinds(ids)
        found, _ = rule(input_ids=ids, **{name: value for name, value in given.items() if name in known})
        positions = found[:, 0].numpy()
        return positions, int(positions.max()) + 1

    def kinds(self, ids: Tensor) -> Tensor:
        """0 where a token is text, 1 for an image, 2 for a video, as transformers counts them."""
        kinds = torch.zeros_like(ids, dtype=torch.int32)
        for kind, token in ((1, self.image_id), (2, self.video_id)):
            kinds[ids == (-1 if token is None else token)] = kind
        return kinds

    def row_media(self, laid: Sequence[tuple[int, Prompt]], device: torch.device | str) -> RowMedia:
        """Join the media of a row whose prompts begin at these tokens; no tensors for text alone."""
        shown = [(start, prompt) for start, prompt in laid if prompt.media is not None]
        joined: dict[str, list[Tensor]] = {}
        for _, prompt in shown:
            for name, tensor in prompt.media.inputs.items():  # type: ignore[union-attr]
                if isinstance(tensor, Tensor) and name != TIMES:
                    joined.setdefault(name, []).append(tensor)
        inputs = {name: _to(torch.cat(tensors), device) for name, tensors in joined.items()}
        found = [
            np.concatenate([np.flatnonzero(np.array(p.ids) == token) + start for start, p in shown] or [_NONE])
            for token in (self.image_id, self.video_id)
        ]
        rows = np.concatenate(found)
        order = None if not len(found[0]) or not len(found[1]) else np.argsort(rows, kind="stable")
        rows = rows if order is None else rows[order]
        return RowMedia(
            inputs, _to(torch.from_numpy(rows), device), None if order is None else _to(torch.from_numpy(order), device)
        )

    def embed(self, ids_N: Tensor, media: RowMedia) -> Embedded:
        """Token embeddings with the features of images and videos in their places, from one pass of the tower."""
        base = self._base
        tokens_NH: Tensor = base.get_input_embeddings()(ids_N)
        pairs = [(media.inputs[pixels], media.inputs[grid]) for pixels, grid in _PIXELS if pixels in media.inputs]
        if not pairs and not self._is_sharded:
            return Embedded(tokens_NH, media.rows, [])
        # Ranks gather the tower's parameters together: one that has no image reads a black patch for nothing.
        pixels, grids = (torch.cat(each) for each in zip(*(pairs or [self._black(ids_N.device)])))
        trained = any(p.requires_grad for p in base.visual.parameters())
        with nullcontext() if trained else torch.no_grad():
            output = base.get_image_features(pixels, grids, return_dict=True)
        features, *deep = (
            _joined(each).to(tokens_NH.dtype)
            for each in (output.pooler_output, *(getattr(output, "deepstack_features", None) or ()))
        )
        if not pairs:
            return Embedded(tokens_NH + sum(each.sum() for each in (features, *deep)) * 0.0, media.rows, [])
        if media.order is not None:
            features, *deep = (each[media.order] for each in (features, *deep))
        return Embedded(tokens_NH.index_copy(0, media.rows, features), media.rows, deep)

    def hidden_states(self, ids_N: Tensor, positions: Tensor, how: object, media: RowMedia) -> Tensor:
        """Last hidden states (1, N, H) by the model's own modules; `how` is the attention of the decoder."""
        base = self._base
        if not self.in_pieces:
            given = {"input_ids": ids_N[None], "position_ids": as_batch(positions), **media.inputs}
            return base(**given, use_cache=False, attention=how).last_hidden_state
        embedded, more = self.embed(ids_N, media), dict[str, Any]()
        if embedded.deep:
            seen_N = torch.zeros(len(ids_N), dtype=torch.bool, device=ids_N.device).index_fill(0, embedded.rows, True)
            more = {"visual_pos_masks": seen_N[None], "deepstack_visual_embeds": embedded.deep}
        return base.language_model(
            inputs_embeds=embedded.tokens_NH[None],
            position_ids=as_batch(positions),
            use_cache=False,
            attention=how,
            **more,
        ).last_hidden_state

    def _black(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Pixels and grid of the smallest image there is."""
        config, m = self._base.config.vision_config, self._merge
        channels = getattr(config, "in_channels", None) or getattr(config, "in_chans", 3)
        patch = channels * config.temporal_patch_size * config.patch_size**2
        return torch.zeros(m * m, patch, device=device), torch.tensor([[1, m, m]], device=device)


_NONE = np.zeros(0, dtype=np.int64)


def _first(config: PretrainedConfig, names: Sequence[str]) -> int | None:
    found: Iterator[Any] = (getattr(config, name, None) for name in names)
    return next((i for i in found if isinstance(i, int)), None)


def _joined(features: Tensor | Sequence[Tensor]) -> Tensor:
    return features if isinstance(features, Tensor) else torch.cat(list(features))


def _to(tensor: Tensor, device: torch.device | str) -> Tensor:
    if torch.device(device).type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
