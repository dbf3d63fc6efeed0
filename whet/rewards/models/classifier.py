"""The forward pass of a reward model: rows of tokens in, scores at some of their tokens out.

Rows are padded on the right, so that no token sees the padding of another row: a row's scores are the same, up to
rounding, whatever shares its batch. Scores are read at positions that the caller names, never found by looking for
padding tokens, which a response may end with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedModel,
)

from whet.errors import UserError
from whet.model.trust import about, check_pickled_weights
from whet.rewards.models.folder import KEY, VALUE_HEAD, RewardFolder

_CLASSES: dict[str, Any] = {
    "sequence": AutoModelForSequenceClassification,
    "token": AutoModelForTokenClassification,
    "causal": AutoModelForCausalLM,
    "value": AutoModel,
}


class Classifier:
    """A loaded reward model."""

    def __init__(
        self,
        folder: RewardFolder,
        device: torch.device,
        dtype: torch.dtype,
        trust_remote_code: bool = False,
        answers: tuple[int, int] | None = None,
        activation: str = "none",
        offload: bool = False,
    ) -> None:
        """`answers` are the tokens of a causal model whose probabilities are compared, the good one first."""
        self._folder, self._device, self._answers, self._activation = folder, device, answers, activation
        self._model = _load(folder, dtype, trust_remote_code)
        self._head = _value_head(folder, self._model) if folder.kind == "value" else None
        self._offload = offload and device.type != "cpu"
        if not self._offload:
            self._move(device)

    def scores(self, rows: Sequence[list[int]], places: Sequence[list[int]], budget: int) -> list[list[float]]:
        """Return the scores of each row at its places, in passes of at most `budget` tokens, padding included."""
        found: list[list[float]] = [[] for _ in rows]
        try:
            if self._offload:
                self._move(self._device)
            for batch in batches([len(row) for row in rows], budget):
                results = self._forward([rows[i] for i in batch], [places[i] for i in batch])
                for i, result in zip(batch, results):
                    found[i] = result
        except torch.OutOfMemoryError as error:
            raise UserError(
                f"{KEY}: the device has no memory for a pass of {budget} tokens: lower {KEY}.micro_batch_tokens, set "
                f"{KEY}.offload=true, or name another {KEY}.device ({str(error)[:200]})"
            ) from None
        finally:
            if self._offload:
                self._move(torch.device("cpu"))
                torch.cuda.empty_cache()
        return found

    def _move(self, device: torch.device) -> None:
        cast(nn.Module, self._model).to(device)
        if self._head is not None:
            self._head.to(device)

    @torch.inference_mode()
    def _forward(self, rows: Sequence[list[int]], places: Sequence[list[int]]) -> list[list[float]]:
        # 1. Pad to (B, T); masked places hold token 0.
        T = max(map(len, rows))
        ids_BT = torch.tensor([row + [0] * (T - len(row)) for row in rows], device=self._device)
        mask_BT = torch.tensor([[1] * len(row) + [0] * (T - len(row)) for row in rows], device=self._device)
        # 2. One line of logits (N, labels) for each place of each row.
        row_N = torch.tensor([i for i, at in enumerate(places) for _ in at], device=self._device)
        place_N = torch.tensor([place for at in places for place in at], device=self._device)
        logits_NL = self._logits(ids_BT, mask_BT, row_N, place_N).float()
        # 3. One score each.
        flat = self._activated(logits_NL).tolist()
        starts = [0]
        for at in places:
            starts.append(starts[-1] + len(at))
        return [flat[start:end] for start, end in pairwise(starts)]

    def _logits(self, ids_BT: Tensor, mask_BT: Tensor, row_N: Tensor, place_N: Tensor) -> Tensor:
        model = self._model
        score = getattr(model, "score", None)
        if self._folder.kind == "token":
            return model(input_ids=ids_BT, attention_mask=mask_BT).logits[row_N, place_N]
        if self._folder.kind == "sequence" and not isinstance(score, nn.Module):
            # An encoder reads the whole row at once, and has one score whatever the place.
            return model(input_ids=ids_BT, attention_mask=mask_BT).logits[row_N]
        body = model if self._folder.kind == "value" else model.base_model
        hidden_BTH = body(input_ids=ids_BT, attention_mask=mask_BT, use_cache=False).last_hidden_state
        hidden_NH = hidden_BTH[row_N, place_N]
        if self._folder.kind == "causal":
            return model.get_output_embeddings()(hidden_NH)[:, list(self._answers or ())]
        head = self._head if self._folder.kind == "value" else score
        assert head is not None
        return head(hidden_NH.to(next(head.parameters()).dtype))

    def _activated(self, logits_NL: Tensor) -> Tensor:
        if self._folder.kind == "causal":
            return logits_NL.softmax(dim=-1)[:, 0]
        if self._activation == "softmax":
            logits_NL = logits_NL.softmax(dim=-1)
        elif self._activation == "sigmoid":
            logits_NL = logits_NL.sigmoid()
        return logits_NL[:, self._folder.label]


def batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Yield indices of rows in batches of similar lengths whose padded size is at most `budget`, or of one row."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if batch and (len(batch) + 1) * lengths[batch[0]] > budget:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _load(folder: RewardFolder, dtype: torch.dtype, trust_remote_code: bool) -> PreTrainedModel:
    path = folder.path
    with about(f"{KEY}.path"):
        check_pickled_weights(path)
    try:
        model, info = _CLASSES[folder.kind].from_pretrained(
            path, config=folder.config, dtype=dtype, trust_remote_code=trust_remote_code, output_loading_info=True
        )
    except Exception as error:  # files of strangers, read by code of transformers or of theirs
        raise UserError(f"{KEY}.path: the weights in {path} could not be loaded: {error}") from None
    missing = sorted(info["missing_keys"])
    if missing:  # transformers would go on with random numbers in their place
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise UserError(f"{KEY}.path: {path} holds no weights for {', '.join(missing[:3])}{more}; use a complete model")
    return model.eval()


def _value_head(folder: RewardFolder, model: PreTrainedModel) -> nn.Linear:
    """Return the head of a critic that whet has saved."""
    head = nn.Linear(model.config.get_text_config().hidden_size, 1, dtype=torch.float32)
    try:
        head.load_state_dict(load_file(Path(folder.path) / VALUE_HEAD))
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(f"{KEY}.path: {folder.path}/{VALUE_HEAD} could not be read: {error}") from None
    return head
