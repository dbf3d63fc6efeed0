"""Open a judge: its rubric, how verdicts are read, who answers, and where answers are kept."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.data.columns import MISSING, lookup
from whet.data.template import PromptTemplate
from whet.rewards.judges.asking import Ask, Asking
from whet.rewards.judges.questions import Questions
from whet.rewards.judges.term import JudgeTerm, Pairing, Reference
from whet.rewards.judges.verdict import BETTER, SCORE, Verdicts
from whet.tracking.journal import Journal

if TYPE_CHECKING:
    from whet.config.schema.reward_terms import JudgeConfig
    from whet.training.reward_terms import Conversations, Surroundings

KEY = "worker.reward.judge"
FILE = "judge.jsonl"  # in the run folder


def open_judge_term(around: Surroundings, conversations: Conversations) -> JudgeTerm:
    """Return the judge of `worker.reward.judge`; one that runs here has its weights read later."""
    settings = around.config.worker.reward.judge
    questions = Questions(_rubric(around).render, conversations, settings.system, settings.low, settings.high)
    default = SCORE if settings.mode == "pointwise" else BETTER
    pattern = None if settings.json_field else re.compile(settings.pattern or default)
    verdicts = Verdicts(pattern, settings.json_field, settings.low, settings.high)
    pairing = None
    if settings.mode == "pairwise":
        pairing = Pairing(settings.opponents, settings.swap, _reference(settings.reference))
    if settings.base_url is not None:
        from whet.training.judge_endpoint import Endpoint

        endpoint = Endpoint(settings)
        asking = _asking(around, endpoint, settings)
        return JudgeTerm(asking, questions, verdicts, pairing, close=endpoint.close, warn=around.console.warn)
    from whet.training.judge_engine import EngineJudge

    judge = EngineJudge(around)
    asking = _asking(around, judge, settings)
    return JudgeTerm(
        asking, questions, verdicts, pairing, tries=False, load=judge.load, close=judge.close, warn=around.console.warn
    )


def _asking(around: Surroundings, ask: Ask, settings: JudgeConfig) -> Asking:
    about: dict[str, Any] = {
        "judge": settings.base_url or settings.model_path,
        "model": settings.model,
        "temperature": settings.temperature,
        "max_tokens": settings.max_tokens,
        "extra_body": settings.extra_body,
    }
    journal = Journal(around.folder / FILE, {"kind": "answers of worker.reward.judge"})
    return Asking(ask, journal, about, settings.concurrency)


def _rubric(around: Surroundings) -> PromptTemplate:
    settings = around.config.worker.reward.judge
    if settings.rubric is not None:
        return PromptTemplate(around.file(settings.rubric), f"{KEY}.rubric")
    return PromptTemplate(Path(str(files("whet.rewards.judges"))) / f"{settings.mode}.jinja", f"{KEY}.rubric")


def _reference(column: str | None) -> Reference | None:
    if column is None:
        return None

    def reference(prompt: Any) -> str | None:
        value = prompt.answer if column == "ground_truth" else lookup(prompt.extra, column)
        return None if value is MISSING or value is None else str(value)

    return reference
