"""Checks of `worker.reward.model.*` and `worker.reward.judge.*`; read only where one of them is set."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from whet.config.files import resolve_path
from whet.config.schema import Config
from whet.config.schema.reward import TERMS
from whet.config.values import show

_DEVICE = re.compile(r"auto|cpu|cuda(:\d{1,3})?")
_MODEL, _JUDGE = "worker.reward.model", "worker.reward.judge"


def term_problems(config: Config) -> Iterator[str]:
    """Yield a sentence for each key of a reward model or a judge that contradicts another, or cannot be followed."""
    reward = config.worker.reward
    for name in TERMS:
        wanted = f"worker.reward.{name}.{'path' if name == 'model' else 'base_url or model_path'}"
        if reward.parts and (name in reward.parts) != (name in reward.terms):
            if name in reward.parts:
                yield f"worker.reward.combine names {name}, but {wanted} is not set"
            else:
                yield f"worker.reward.{name} is set, but worker.reward.combine has no part {name}: give its weight"
    if "model" in reward.terms:
        yield from _model(config)
    if "judge" in reward.terms:
        yield from _judge(config)


def _model(config: Config) -> Iterator[str]:
    model = config.worker.reward.model
    yield from _device(_MODEL, model.device, config)
    if model.render == "text" and model.template is None:
        yield f"{_MODEL}.render=text needs {_MODEL}.template, the file that writes the text"
    if model.template is not None and model.render in ("tokens", "chat"):
        yield f"{_MODEL}.template is set, but {_MODEL}.render={model.render} does not read it: leave one of them out"
    yield from _file(config, f"{_MODEL}.template", model.template)
    steps = model.steps
    if (steps.good is None) != (steps.bad is None):
        yield f"{_MODEL}.steps.good and {_MODEL}.steps.bad belong together: set both or none"


def _judge(config: Config) -> Iterator[str]:
    judge = config.worker.reward.judge
    if judge.base_url and judge.model_path:
        yield f"{_JUDGE}.base_url and {_JUDGE}.model_path are set, but one judge is asked: keep one of them"
    yield from _device(_JUDGE, judge.device, config if judge.model_path else None)
    yield from _file(config, f"{_JUDGE}.rubric", judge.rubric)
    if judge.pattern is not None and judge.json_field is not None:
        yield f"{_JUDGE}.pattern and {_JUDGE}.json_field both find the verdict: keep one of them"
    if judge.pattern is not None:
        try:
            re.compile(judge.pattern)
        except (re.error, RecursionError, OverflowError) as error:
            yield f"{_JUDGE}.pattern={show(judge.pattern)} is no regular expression: {error}"
    if judge.low == judge.high:
        yield f"{_JUDGE}.low and {_JUDGE}.high are both {judge.low:g}: they are the verdicts that score 0 and 1"
    if judge.mode == "pairwise":
        if judge.reference is not None and judge.opponents is not None:
            yield f"{_JUDGE}.opponents counts responses of the group, but {_JUDGE}.reference compares with a column"
        if judge.reference is None and config.worker.rollout.n < 2 and not config.trainer.val_only:
            yield (
                f"{_JUDGE}.mode=pairwise compares the responses to a prompt with each other, but worker.rollout.n="
                f"{config.worker.rollout.n}: sample at least 2, or name a column by {_JUDGE}.reference"
            )
    elif judge.reference is not None or judge.opponents is not None:
        yield f"{_JUDGE}.reference and {_JUDGE}.opponents are for {_JUDGE}.mode=pairwise; leave them out"


def _device(section: str, device: str, config: Config | None) -> Iterator[str]:
    if not _DEVICE.fullmatch(device):
        yield f"{section}.device={show(device)}: write auto, cpu, cuda or cuda:1"
    elif config is not None and device == "auto" and config.trainer.n_gpus_per_node * config.trainer.nnodes > 1:
        yield (
            f"{section}.device=auto: the policy is on several devices, and this model runs in the process that drives "
            "them: name its device, such as cpu or cuda:0"
        )


def _file(config: Config, key: str, file: str | None) -> Iterator[str]:
    if file is not None and not os.path.isfile(resolve_path(config, file)):
        yield f"{key}={show(file)}: there is no such file"
