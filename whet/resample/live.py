"""Continuations drawn by the engine of a run that is going on, between two of its steps.

The run is asked by a file in its folder, and answers by another (`whet/training/live_draws.py`). Everything else, its
reward above all, happens in this process.
"""

from __future__ import annotations

import io
import json
import secrets
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from whet.config import Config, with_values
from whet.errors import UserError
from whet.resample.opened import Opened
from whet.rollout.engine import SamplingParams, Start
from whet.tracking.console import Console
from whet.tracking.requests import ask_draw
from whet.training.live_draws import SAMPLED
from whet.training.model_folder import find_model
from whet.types import Prompt, Sample, Segment

_LONGEST_SECONDS = 1800.0
_POLL_SECONDS = 0.2


class LiveEngine:
    """The engine of a running run, as far as `draw_branch` needs one. `step` and `version` are those of its answer."""

    def __init__(self, folder: Path, is_running: Callable[[], bool]) -> None:
        self.version, self.step = 0, 0
        self._folder, self._is_running = folder, is_running

    def generate(self, prompts: Sequence[Start], params: SamplingParams, sample_ids: Sequence[int]) -> list[Sample]:
        """Ask the run, and wait until it is between two steps."""
        starts = [_parts(start) for start in prompts]
        content = {
            "starts": [_plain(prompt, segments) for prompt, segments in starts],
            "sample_ids": list(sample_ids),
            "params": {name: getattr(params, name) for name in SAMPLED},
        }
        found = self._ask(content)
        self.version, self.step = int(found["version"]), int(found["step"])
        samples = []
        for (prompt, segments), each in zip(starts, found["samples"], strict=True):
            new = sum(len(segment.ids) for segment in segments)
            written = Segment(each["ids"][new:], True, each["log_probs"][new:], each["version"])
            samples.append(Sample(prompt, [*segments, written], each["finish"], group=0))
        return samples

    def _ask(self, content: dict[str, Any]) -> dict[str, Any]:
        name = secrets.token_hex(8)
        try:
            answer = ask_draw(self._folder, name, content)
        except OSError as error:
            raise UserError(f"{self._folder}: the run cannot be asked: {error.strerror or error}") from error
        end = time.monotonic() + _LONGEST_SECONDS
        while not answer.exists():
            if not self._is_running() and not answer.exists():
                raise UserError("resample: the run ended before it answered; draw from a checkpoint")
            if time.monotonic() > end:
                raise UserError("resample: the run did not come to the end of its step; draw from a checkpoint")
            time.sleep(_POLL_SECONDS)
        try:
            found: dict[str, Any] = json.loads(answer.read_bytes())
        finally:
            answer.unlink(missing_ok=True)
        if "error" in found:
            raise UserError(f"resample: {found['error']}")
        return found


def open_live(config: Config, folder: Path, is_running: Callable[[], bool], stack: ExitStack) -> Opened:
    """Open tokenizer, prompts and reward of a running run, without weights: its own engine draws."""
    if not is_running():
        raise UserError("resample: this run is not going on; leave live out to draw from a checkpoint")
    console = Console(quiet=True, stream=io.StringIO())
    config = with_values(config, {"worker.actor.model.trust_remote_code": False})
    scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="whet-resample-")))
    engine: Any = LiveEngine(folder, is_running)
    return Opened(config, find_model(config, console.note), None, engine, scratch, stack, console)


def _parts(start: Start) -> tuple[Prompt, list[Segment]]:
    prompt, segments = (start.prompt, start.segments) if isinstance(start, Sample) else (start, [])
    if prompt.media is not None or any(segment.media is not None for segment in segments):
        raise UserError("resample: samples with images are drawn from a checkpoint, not by the running engine")
    return prompt, segments


def _plain(prompt: Prompt, segments: Sequence[Segment]) -> dict[str, Any]:
    written = [{"ids": segment.ids, "by_model": segment.by_model} for segment in segments]
    return {"prompt_ids": prompt.ids, "segments": written}
