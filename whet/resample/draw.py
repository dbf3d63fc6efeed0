"""Draw a sample again, segment by segment, or continue it from a token."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from whet.errors import UserError
from whet.resample.batches import batch_of
from whet.resample.opened import Opened
from whet.resample.request import Request
from whet.resample.source import Source
from whet.rollout.engine import Start
from whet.types import Prompt, Sample, Segment

_BRANCHES = 1 << 40  # sample ids of further continuations begin here, beyond those of any run


@dataclass(frozen=True, slots=True)
class Redrawn:
    """A sample that was drawn again; `drawn` marks the tokens that were, the others are kept as they were."""

    sample: Sample
    drawn: list[bool]
    notes: list[str]


def draw_again(opened: Opened, folder: Path, source: Source, request: Request, prompt: Prompt) -> Redrawn:
    """Draw with the sample's own random numbers what the loaded weights wrote of it."""
    if opened.config.worker.rollout.name == "hf":
        return _draw_in_batch(opened, folder, source, request, prompt)
    if source.ids is None or len(source.segments()) == 1:
        (sample,) = opened.engine.generate([prompt], opened.params(request.split), [source.sample_id])
        return Redrawn(sample, [True] * len(sample.ids), [])
    return _draw_segments(opened, source, request, prompt)


def _draw_segments(opened: Opened, source: Source, request: Request, prompt: Prompt) -> Redrawn:
    """Draw each segment that this version wrote behind those before it, as they were in the run.

    What tools, environments and other versions wrote is kept: an episode is not played again.
    """
    params, written = opened.params(request.split), source.segments()
    segments: list[Segment] = []
    drawn: list[bool] = []
    others = 0
    for place, segment in enumerate(written):
        if not segment.by_model or segment.version != opened.engine.version:
            others += segment.by_model
            segments.append(segment)
            drawn += [False] * len(segment.ids)
            continue
        before = Sample(prompt, written[:place], "abort", group=0) if place else prompt
        limited = replace(params, max_tokens=len(segment.ids))
        (sample,) = opened.engine.generate([before], limited, [source.sample_id])
        new = sample.ids[sum(len(each.ids) for each in written[:place]) :]
        values = sample.log_probs[len(sample.ids) - len(new) :]
        segments.append(Segment(new, True, values, segment.version))
        drawn += [True] * len(new)
    notes = ["Turns that a tool or the environment wrote are kept as they were."] if not all(source.mask or [1]) else []
    if others:
        notes.append(f"{others} segments of other policy versions are kept as they were.")
    return Redrawn(Sample(prompt, segments, "stop", group=0), drawn, notes)


def _draw_in_batch(opened: Opened, folder: Path, source: Source, request: Request, prompt: Prompt) -> Redrawn:
    """Draw the whole batch that the hf engine sampled: its random numbers are those of the batch."""
    batch, note = batch_of(folder, opened, source, request)
    if batch is None:
        (sample,) = opened.engine.generate([prompt], opened.params(request.split), [source.sample_id])
        return Redrawn(sample, [True] * len(sample.ids), [note])
    prompts = opened.prompts(batch.uids, request.split)
    samples = opened.engine.generate(prompts, opened.params(request.split), batch.sample_ids)
    sample = samples[batch.place]
    return Redrawn(sample, [True] * len(sample.ids), [note])


def draw_branch(
    opened: Opened, source: Source, request: Request, prompt: Prompt, ids: list[int] | None
) -> tuple[list[Sample], int]:
    """Return n continuations, and the number of response tokens that all of them have in common.

    `ids` are the sample's tokens. The first continuation has the sample's own random numbers, so that it differs from
    the sample only by what the request changes; the others have numbers of their own.
    """
    at = request.at or 0
    if at and ids is None:
        raise UserError(
            "resample: the run kept no token ids of this sample and it could not be drawn again as it was, so that it "
            "cannot be branched at a token; trainer.log_token_details=true keeps them. Branch at 0 draws it anew"
        )
    if ids is not None and at > len(ids):
        raise UserError(f"resample: at={at}, but the response has {len(ids)} tokens")
    kept = _kept(source, (ids or [])[:at])
    forced = _token(opened, request)
    if forced is not None:
        kept.append(Segment([forced], True, [0.0], opened.engine.version))
    if request.prompt is not None:
        if prompt.media is not None:
            raise UserError("resample: a prompt with images cannot be edited here")
        prompt = replace(prompt, ids=opened.encode(request.prompt), text=request.prompt)
    common = sum(len(segment.ids) for segment in kept)
    params = opened.params(request.split)
    room = params.max_tokens - common
    if room < 1:
        raise UserError(f"resample: the response has its {params.max_tokens} tokens already (data.max_response_length)")
    heat = params.temperature if request.temperature is None else float(request.temperature)
    params = replace(params, temperature=heat, max_tokens=room)
    start: Start = Sample(prompt, kept, "abort", group=0) if kept else prompt
    own = source.sample_id
    sample_ids = [own, *(_BRANCHES + own * 1024 + i for i in range(1, request.n))]
    return opened.engine.generate([start] * request.n, params, sample_ids), common


def _kept(source: Source, ids: list[int]) -> list[Segment]:
    """Return the segments of the first tokens of a sample."""
    if source.ids is None:
        return [Segment(ids, True, [0.0] * len(ids), source.version)] if ids else []
    left, kept = len(ids), []
    for segment in source.segments():
        if not left:
            break
        taken = segment.ids[:left]
        kept.append(replace(segment, ids=taken, log_probs=segment.log_probs[: len(taken)]))
        left -= len(taken)
    return kept


def _token(opened: Opened, request: Request) -> int | None:
    size = opened.folder.config.get_text_config().vocab_size
    if request.token is not None and request.token >= size:
        raise UserError(f"resample: token={request.token}; the model's ids end at {size - 1}")
    if request.text is None:
        return request.token
    ids = opened.folder.tokenizer(request.text, add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        listed = ", ".join(f"{each} {opened.folder.tokenizer.decode([each])!r}" for each in ids[:10])
        raise UserError(f"resample: {request.text!r} is not one token but {len(ids)} ({listed}); give the id of one")
    return int(ids[0])
