"""Resample: answer requests about the samples of one run, with the weights of the last request kept loaded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from whet.config import Config
from whet.errors import UserError
from whet.resample.draw import draw_again, draw_branch
from whet.resample.opened import Opened, config_at, open_run
from whet.resample.request import Request
from whet.resample.source import Source, read_source
from whet.resample.tokens import view_tokens
from whet.resample.weights import Weights, find_weights
from whet.tracking.run_folder import clean
from whet.types import Prompt, Sample


class Resampler:
    """Answers requests one at a time. Weights stay loaded until a request needs others; close it in the end."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._key: tuple[Any, ...] | None = None
        self._opened: Opened | None = None

    def __enter__(self) -> Resampler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the weights and of the reward's processes."""
        self._stack.close()
        self._stack, self._key, self._opened = ExitStack(), None, None

    def answer(self, folder: Path, request: Request) -> dict[str, Any]:
        """Return what a request asks for, as JSON can hold it."""
        if not (folder / "config.yaml").is_file():
            raise UserError(f"{folder} holds no run (it has no config.yaml)")
        source = read_source(folder, request)
        config = config_at(folder, request.step)
        if request.live:
            return self._live(folder, config, source, request)
        weights = find_weights(folder, config, source.version, request.checkpoint)
        opened = self._open(folder, config, weights)
        (prompt,) = opened.prompts([source.row["uid"]], request.split)
        notes = [weights.sentence, *opened.notes, *_changed(source, prompt)]
        act = {"again": self._again, "branch": self._branch, "tokens": self._tokens}[request.kind]
        found = act(opened, folder, source, request, prompt, notes)
        return {
            "kind": request.kind,
            "checkpoint": weights.checkpoint.path.name if weights.checkpoint else None,
            "version": weights.version,
            "exact": weights.exact,
            "notes": notes,
            **found,
        }

    def _live(self, folder: Path, config: Config, source: Source, request: Request) -> dict[str, Any]:
        """Branch with the engine of a run that is going on."""
        from whet.resample.live import LiveEngine, open_live
        from whet.tracking.status import read_status

        with ExitStack() as stack:
            opened = open_live(config, folder, lambda: read_status(folder) == "running", stack)
            (prompt,) = opened.prompts([source.row["uid"]], request.split)
            notes = _changed(source, prompt)
            found = self._branch(opened, folder, source, request, prompt, notes)
            engine = opened.engine
            assert isinstance(engine, LiveEngine)
            notes.insert(
                0,
                f"Drawn by the run itself after step {engine.step}, with policy version {engine.version}; the "
                f"sample was written by version {source.version}.",
            )
        exact = engine.version == source.version
        return {
            "kind": "branch",
            "checkpoint": None,
            "version": engine.version,
            "exact": exact,
            "notes": notes,
            **found,
        }

    def _open(self, folder: Path, config: Config, weights: Weights) -> Opened:
        file = weights.checkpoint.path if weights.checkpoint else None
        key = (folder, file, file.stat().st_mtime_ns if file else 0, config)
        if self._opened is None or self._key != key:
            self.close()
            with ExitStack() as stack:
                self._opened = open_run(config, weights, stack)
                self._stack, self._key = stack.pop_all(), key
        return self._opened

    def _again(
        self, opened: Opened, folder: Path, source: Source, request: Request, prompt: Prompt, notes: list[str]
    ) -> dict[str, Any]:
        redrawn = draw_again(opened, folder, source, request, prompt)
        notes += [note for note in redrawn.notes if note]
        sample = redrawn.sample
        sample.text = opened.text(sample.ids)
        equal, first, compared = compare(opened, source, sample)
        return {
            "equal": equal,
            "first_difference": first,
            "compared": compared,
            "recorded": _tokens_of(opened, source.ids, source.log_probs) if source.ids is not None else None,
            "drawn": _tokens_of(opened, sample.ids, sample.log_probs),
            "was_drawn": redrawn.drawn,
            "text": clean(sample.text),
        }

    def _branch(
        self, opened: Opened, folder: Path, source: Source, request: Request, prompt: Prompt, notes: list[str]
    ) -> dict[str, Any]:
        ids = source.ids
        if ids is None and request.at and not request.live:
            redrawn = draw_again(opened, folder, source, request, prompt).sample
            redrawn.text = opened.text(redrawn.ids)
            if compare(opened, source, redrawn)[0]:
                ids = redrawn.ids
                notes.append("The run kept no token ids of this sample: those of drawing it again are taken.")
        samples, common = draw_branch(opened, source, request, prompt, ids)
        for number, sample in enumerate(samples):
            sample.text, sample.group, sample.index = opened.text(sample.ids), 0, number
        if (unscored := opened.score(samples)) is not None:
            notes.append(f"No scores: {unscored}.")
        return {"common": common, "continuations": [_continuation(opened, each) for each in samples]}

    def _tokens(
        self, opened: Opened, folder: Path, source: Source, request: Request, prompt: Prompt, notes: list[str]
    ) -> dict[str, Any]:
        if source.ids is None:
            sample = draw_again(opened, folder, source, request, prompt).sample
            sample.text = opened.text(sample.ids)
            if not compare(opened, source, sample)[0]:
                raise UserError("resample: the run kept no token ids of this sample, and it could not be drawn again")
        else:
            sample = Sample(prompt, source.segments(), "stop", group=0)
        view = view_tokens(opened, sample, opened.params(request.split).temperature, request.top)
        return {
            "tokens": _tokens_of(opened, sample.ids, view.log_probs),
            "entropies": [_number(each) for each in view.entropies],
            "alternatives": [
                [{"id": token, "text": opened.token_text(token), "log_prob": _number(value)} for token, value in place]
                for place in view.alternatives
            ],
        }


def _changed(source: Source, prompt: Prompt) -> list[str]:
    if clean(prompt.text) == source.row["prompt"]:
        return []
    return ["The prompt is not the one that the run recorded: its data or template has changed since."]


def compare(opened: Opened, source: Source, sample: Sample) -> tuple[bool, int | None, str]:
    """Compare a sample with the recorded one; return equality, the first token that differs, and what was compared.

    Where the run kept no ids, texts are compared; the reward function read them so.
    """
    if source.ids is None:
        same = clean(sample.text) == source.row["response"] and len(sample.ids) == source.row["length"]
        return same, None, "text and length"
    pairs = zip(source.ids, sample.ids)
    first = next((place for place, (a, b) in enumerate(pairs) if a != b), None)
    if first is None and len(source.ids) != len(sample.ids):
        first = min(len(source.ids), len(sample.ids))
    return first is None, first, "tokens"


def resample(folder: str | Path, request: Request) -> dict[str, Any]:
    """Answer one request about a run."""
    with Resampler() as resampler:
        return resampler.answer(Path(folder).expanduser().absolute(), request)


def _continuation(opened: Opened, sample: Sample) -> dict[str, Any]:
    scores = {name: _number(value) for name, value in sample.scores.items()}
    return {
        "text": clean(sample.text),
        "finish": sample.finish,
        "reward": _number(sample.reward) if "overall" in sample.scores else None,
        "scores": scores,
        "failure": sample.failure,
        "tokens": _tokens_of(opened, sample.ids, sample.log_probs),
    }


def _tokens_of(opened: Opened, ids: Sequence[int], log_probs: Sequence[float] | None) -> list[dict[str, Any]]:
    values = log_probs if log_probs is not None else [math.nan] * len(ids)
    return [{"id": i, "text": opened.token_text(i), "log_prob": _number(v)} for i, v in zip(ids, values)]


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
