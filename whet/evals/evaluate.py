"""`whet eval`: read every data set, ask, score, report.

Everything that can be wrong with data sets, columns and reward functions is found before weights are loaded or a server
is asked for more than its name.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from transformers.utils import logging as transformers_logging

from whet import __version__
from whet.checkpoint.durable import replacing, write_text
from whet.config import Config, run_folder, summary_lines, val_rollout
from whet.errors import UserError
from whet.evals.questions import Questions, read_questions
from whet.evals.registry import chosen
from whet.evals.report import shown, write_report
from whet.evals.respond import Answers, ApiAnswers, EngineAnswers, params_of, read_responses
from whet.evals.results import Result, summarise
from whet.evals.sampling import open_policy
from whet.evals.scoring import Judge, Scored
from whet.tracking.console import Console
from whet.tracking.run_folder import answer_text, clean


@dataclass(slots=True)
class Job:
    """A data set on its way to a result."""

    questions: Questions
    judge: Judge
    answer: Callable[[], Answers]


def evaluate(config: Config, examples: Path) -> list[Result]:
    """Evaluate as the config says, and write the report."""
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    console, started = Console(config.trainer.quiet), time.perf_counter()
    console.notes(summary_lines(config, "eval"))
    folder = report_folder(config)
    with ExitStack() as stack:
        config, who, jobs = open_jobs(config, examples, folder, console, stack)
        write_text(folder / "config.yaml", config.to_yaml())
        results = []
        for job in jobs:
            scored = job.judge.score(job.answer())
            dataset = job.questions.dataset
            if not scored:
                raise UserError(f"{dataset.name}: no question was left to score")
            _write_samples(folder / dataset.name / "samples.jsonl", scored)
            result = summarise(dataset, scored, config.eval)
            name, accuracy = result.accuracy
            console.note(f"{dataset.name}: {name} {shown(name, accuracy)} on {result.total.questions} questions")
            if result.failed:
                first = next(each.failure for each in scored if each.failure)
                console.warn(f"{dataset.name}: {result.failed} of {len(scored)} samples failed, the first: {first}")
            results.append(result)
        report = write_report(folder, _about(config, who(), jobs, time.perf_counter() - started), results)
    console.note(f"report: {report}")
    for job in jobs:  # the other data sets are evaluated and reported all the same
        if job.judge.total_failure is not None:
            raise job.judge.total_failure
    return results


def open_jobs(
    config: Config, examples: Path, folder: Path, console: Console, stack: ExitStack
) -> tuple[Config, Callable[[], str], list[Job]]:
    """Open the responder and the data sets, all checked; return them with the config with the model's adapters."""
    datasets = chosen(config)
    jobs = []
    if config.eval.responses is not None:
        (dataset,) = datasets
        questions, answers = read_responses(config, examples, dataset)
        judge = Judge(config, examples, questions, folder, console, stack)
        return config, lambda: f"the file {config.eval.responses}", [Job(questions, judge, lambda: answers)]
    source: ApiAnswers | EngineAnswers
    if config.eval.via == "api":
        api = source = ApiAnswers(config, folder, console, stack)
        who = lambda: f"{api.model} at {config.eval.api.base_url}"  # noqa: E731
    else:
        opened = open_policy(config, console)
        config = opened.config
        source = EngineAnswers(config, opened, folder, console, stack)
        who = lambda: opened.name  # noqa: E731
    for dataset in datasets:
        questions = read_questions(config, examples, dataset, console)
        answer = source.prepare(questions)
        jobs.append(Job(questions, Judge(config, examples, questions, folder, console, stack), answer))
    return config, who, jobs


def report_folder(config: Config) -> Path:
    """The folder of `eval.output`, made where it is missing."""
    named = config.eval.output
    folder = Path(os.path.expanduser(named)) if named else run_folder(config) / "eval"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"eval.output={folder}: the folder cannot be made ({error.strerror})") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"eval.output={folder} cannot be written to")
    return folder


def _about(config: Config, who: str, jobs: Sequence[Job], seconds: float) -> dict[str, str]:
    about = {"answered by": who}
    if config.eval.responses is None:
        rollout = val_rollout(config)
        asked = {params_of(config, job.questions.dataset).n for job in jobs}
        about |= {
            "samples per question": " to ".join(str(each) for each in sorted({min(asked), max(asked)})),
            "temperature": f"{rollout.temperature:g}",
            "top_p": f"{rollout.top_p:g}",
            "longest response": f"{config.data.max_response_length} tokens",
            "seed": str(rollout.seed),
        }
    interval = f"{100 * config.eval.confidence:g} %, bootstrap over questions, {config.eval.draws} draws"
    return about | {"intervals": interval, "seconds": f"{seconds:.1f}", "whet": __version__}


def _write_samples(path: Path, scored: Sequence[Scored]) -> None:
    """Every answer with its scores, for people and for another `eval.responses`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as side, side.open("w", encoding="utf-8") as file:
        for each in scored:
            row = {
                "uid": each.question.uid,
                "index": each.index,
                "response": clean(each.answer.text),
                "said": each.said if each.said is None else clean(each.said),
                "answer": answer_text(each.question.truth.answer),
                "correct": each.correct,
                "finish": each.answer.finish,
                "response_length": each.answer.length,
                "scores": each.scores,
                "groups": each.question.groups,
                "failure": each.failure,
            }
            if each.answer.end is not None:
                row |= {"end": clean(each.answer.end), "turns": each.answer.turns, "env_reward": each.answer.earned}
            file.write(clean(json.dumps(row, ensure_ascii=False)) + "\n")
