"""Likeliest tokens at every place of a window of decoding, where a request asks for them."""

from __future__ import annotations

import torch
from torch import Tensor

from whet.rollout.engines.native.flight import LOOKAHEAD


class WindowTops:
    """Token ids and log-probs of the k likeliest tokens, at addresses that do not change: a graph can hold them."""

    def __init__(self, slots: int, device: torch.device) -> None:
        self._slots, self._device = slots, device
        self._windows: dict[int, tuple[Tensor, Tensor]] = {}  # by k: (LOOKAHEAD, slots, k) ids, and their log-probs

    def window(self, k: int) -> tuple[Tensor, Tensor] | None:
        """What the last window found; None for k = 0."""
        if k and k not in self._windows:
            shape = (LOOKAHEAD, self._slots, k)
            ids = torch.zeros(shape, dtype=torch.int64, device=self._device)
            self._windows[k] = (ids, torch.zeros(shape, device=self._device))
        return self._windows.get(k)

    def keep(self, k: int, logits_BV: Tensor, temperature_B: Tensor, step_1: Tensor) -> None:
        """Find the k likeliest tokens of each row, on the scale of sampled log-probs, for row `step_1`."""
        window = self.window(k)
        if window is None:
            return
        scaled_BV = logits_BV.float() / temperature_B.where(temperature_B > 0, 1.0)[:, None]
        values_Bk, ids_Bk = scaled_BV.topk(min(k, scaled_BV.shape[1]))
        values_Bk = values_Bk - torch.logsumexp(scaled_BV, dim=-1, keepdim=True)
        for kept, found in zip(window, (ids_Bk, values_Bk)):
            kept[:, : len(found), : found.shape[1]].index_copy_(0, step_1, found[None])
