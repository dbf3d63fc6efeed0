"""Draws that somebody asked a running run for: answered between two steps by the engine that it samples with.

A request is a file of JSON in `requests/`, written by `whet/resample/live.py`; the answer is another one beside it.
Random numbers of a sample are a function of its id alone, so that nothing that is trained on changes. A request that is
wrong, or that fails, is answered with the reason and costs the run nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from whet.config import Config
from whet.errors import UserError
from whet.rollout.engine import Engine, Start
from whet.tracking.requests import Draw, take_draws
from whet.training.rollouts import sampling_params
from whet.types import Prompt, Sample, Segment

MOST_SAMPLES = 64
SAMPLED = ("temperature", "top_p", "top_k", "min_p", "max_tokens", "seed", "ignore_eos")  # that a request gives


def answer_draws(folder: Path, engine: Engine, config: Config, vocab_size: int, step: int) -> int:
    """Answer the draws that are waiting; return their number."""
    draws = take_draws(folder)
    for draw in draws:
        try:
            samples = _draw(draw, engine, config, vocab_size)
        except (UserError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
            draw.answer({"error": f"the run refused the draw: {error}"})
            continue
        draw.answer(
            {
                "step": step,
                "version": engine.version,
                "samples": [
                    {"ids": each.ids, "log_probs": each.log_probs, "finish": each.finish, "version": each.version}
                    for each in samples
                ],
            }
        )
    return len(draws)


def _draw(draw: Draw, engine: Engine, config: Config, vocab_size: int) -> list[Sample]:
    given = draw.content
    starts = [_start(each, config, vocab_size) for each in given["starts"]]
    ids = [_whole(each, 1 << 62) for each in given["sample_ids"]]
    if not 1 <= len(starts) == len(ids) <= MOST_SAMPLES:
        raise UserError(f"1 to {MOST_SAMPLES} starts, each with a sample id")
    asked = {name: given["params"][name] for name in SAMPLED}
    asked["max_tokens"] = _whole(asked["max_tokens"], config.data.max_response_length)
    params = replace(sampling_params(config.worker.rollout, 1), n=1, **asked)
    return engine.generate(starts, params, ids)


def _start(given: Mapping[str, Any], config: Config, vocab_size: int) -> Start:
    prompt = Prompt("live", [_whole(each, vocab_size - 1) for each in given["prompt_ids"]], "")
    segments = [
        Segment(
            [_whole(each, vocab_size - 1) for each in segment["ids"]],
            bool(segment["by_model"]),
            [0.0] * len(segment["ids"]),
        )
        for segment in given["segments"]
    ]
    if not 1 <= len(prompt.ids) <= config.data.max_prompt_length:
        raise UserError(f"a prompt of 1 to {config.data.max_prompt_length} tokens")
    if sum(len(segment.ids) for segment in segments) >= config.data.max_response_length:
        raise UserError(f"fewer than {config.data.max_response_length} tokens of a response")
    return Sample(prompt, segments, "abort", group=0) if segments else prompt


def _whole(value: Any, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise UserError(f"{value!r} is no whole number from 0 to {most}")
    return value
