"""Sources of responses: an engine with the model, a server behind an API, or a file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from whet.config import Config, val_rollout
from whet.data.columns import MISSING, lookup
from whet.data.dataset import PromptDataset
from whet.data.files import Table, read_tables
from whet.data.rows import BadRow
from whet.errors import UserError
from whet.evals.answers import Answer
from whet.evals.api import ApiModel
from whet.evals.chats import ChatWriter
from whet.evals.generate import digest, environment_of
from whet.evals.progress import progress
from whet.evals.questions import Question, Questions, arrange
from whet.evals.registry import DataSet
from whet.evals.sampling import Policy, sample_all
from whet.rollout.blocking import run_blocking
from whet.rollout.engine import Engine, SamplingParams
from whet.rollout.uniforms import stream_keys
from whet.tracking.console import Console
from whet.tracking.journal import Journal
from whet.training.parts import resolver
from whet.training.rollouts import validation_params
from whet.types import Prompt, Sample

Answers = dict[str, list[Answer]]  # by the uid of the question
_ANSWERS = "\0answers"  # a column that no file has
_SEED_BITS = 31  # the widest seed that every server takes


def params_of(config: Config, dataset: DataSet) -> SamplingParams:
    """Return a data set's sampling parameters: those of validation, with the config's or the data set's n."""
    rollout = val_rollout(config)
    n = config.eval.n or dataset.n or rollout.n
    if n > 1 and rollout.temperature == 0:
        raise UserError(
            f"{dataset.name} is asked {n} times, and at temperature 0 all answers are the same: set eval.n=1, or "
            "worker.rollout.temperature above 0"
        )
    return replace(validation_params(rollout, config.data.max_response_length), n=n)


class EngineAnswers:
    """The model of the config; its prompts are made, and counted, before its weights are loaded."""

    def __init__(self, config: Config, opened: Policy, folder: Path, console: Console, stack: ExitStack) -> None:
        self._config, self._opened, self._folder = config, opened, folder
        self._console, self._stack = console, stack
        self._engine: Engine | None = None
        self._environments = opened.open_environments(console, stack)

    def prepare(self, questions: Questions) -> Callable[[], Answers]:
        """Check a data set, and return what answers it."""
        config, dataset = self._config, questions.dataset
        prompts = PromptDataset(
            questions.tables,
            questions.data,
            self._opened.tokenizer,
            dataset.name,
            resolver(config),
            self._opened.processor,
            config.worker.rollout.limit_images,
        )
        self._console.note(f"{dataset.name}: {prompts.summary()}")
        params = params_of(config, dataset)
        about = {
            "model": self._opened.name,
            "weights": self._opened.weights,
            "engine": config.worker.rollout.name,
            "data": digest([[table.name, table.rows] for table in questions.tables]),
            "first prompt": prompts[0].text,
            **environment_of(config),
            **asdict(params),
        }
        return lambda: self._answer(dataset, prompts, params, about)

    def _answer(
        self, dataset: DataSet, prompts: PromptDataset, params: SamplingParams, about: dict[str, Any]
    ) -> Answers:
        with Journal(self._folder / dataset.name / "answers.jsonl", about) as journal:
            rows = [row for row, uid in enumerate(prompts.uids) if uid not in journal]
            if rows:
                if len(rows) < len(prompts):
                    self._console.note(
                        f"{dataset.name}: {len(prompts) - len(rows)} of {len(prompts)} are answered already"
                    )
                self._engine = self._engine or self._opened.open_engine(
                    self._console, self._stack, self._folder / "rollout.log"
                )
                with progress(self._console, dataset.name, len(rows) * params.n) as advance:

                    def done(prompt: Prompt, samples: list[Sample]) -> None:
                        texts = self._opened.texts(samples)
                        answers = [Answer.of(sample, text) for text, sample in zip(texts, samples)]
                        record = {"prompt": prompt.text, "answers": [each.as_record() for each in answers]}
                        journal.add(prompt.uid, record)
                        advance(len(samples))

                    sample_all(self._config, self._engine, prompts, rows, params, done, self._environments)
            return {uid: [Answer(**each) for each in journal[uid]["answers"]] for uid in prompts.uids}


class ApiAnswers:
    """A server; every answer of it is kept in the report's folder."""

    def __init__(self, config: Config, folder: Path, console: Console, stack: ExitStack) -> None:
        self._config, self._console = config, console
        self._cache = stack.enter_context(Journal(folder / "api_cache.jsonl", {"holds": "answers of servers"}))
        self.model = config.eval.api.model or "the server's model"

    def prepare(self, questions: Questions) -> Callable[[], Answers]:
        """Write the first question, and return what answers all of them."""
        writer, params = ChatWriter(questions.data), params_of(self._config, questions.dataset)
        writer.messages(next(iter(questions.by_uid.values())))
        return lambda: run_blocking(self._answer(questions, writer, params))

    async def _answer(self, questions: Questions, writer: ChatWriter, params: SamplingParams) -> Answers:
        model = ApiModel(self._config.eval.api, self._cache)
        await model.connect()
        self.model = model.name
        found: Answers = {}
        places = asyncio.Semaphore(2 * self._config.eval.api.concurrency)  # questions whose images are in memory
        total = len(questions.by_uid) * params.n
        with progress(self._console, questions.dataset.name, total) as advance:

            async def ask(row: int, question: Question) -> None:
                async with places:
                    messages = self._written(writer, question)
                    if messages is None:
                        return
                    keys = stream_keys(params.seed, torch.arange(params.n) + row * params.n).tolist()
                    tasks = [
                        asyncio.create_task(model.answer(messages, params, key & (2**_SEED_BITS - 1), index))
                        for index, key in enumerate(keys)
                    ]
                    try:
                        found[question.uid] = await asyncio.gather(*tasks)
                    finally:
                        for task in tasks:
                            task.cancel()
                    advance(params.n)

            try:
                async with asyncio.TaskGroup() as group:
                    for row, question in enumerate(questions.by_uid.values()):
                        group.create_task(ask(row, question))
            except* UserError as errors:
                failure: BaseException = errors.exceptions[0]
                while isinstance(failure, BaseExceptionGroup):
                    failure = failure.exceptions[0]
                raise failure from None
        cached = sum(map(len, found.values())) - model.asked
        if cached > 0:
            self._console.note(f"{questions.dataset.name}: {cached} of {total} answers were in the cache already")
        return {uid: found[uid] for uid in questions.by_uid if uid in found}

    def _written(self, writer: ChatWriter, question: Question) -> list[dict[str, Any]] | None:
        try:
            return writer.messages(question)
        except BadRow as error:
            if self._config.data.on_bad_media == "stop":
                raise BadRow(f"{error} (data.on_bad_media=skip leaves such rows out)") from error
            self._console.warn(f"left out: {error}")
            return None


def read_responses(config: Config, examples: Path, dataset: DataSet) -> tuple[Questions, Answers]:
    """The questions and answers in the file that `eval.responses` names; rows of one question are its samples."""
    key = config.eval.response_key
    tables = read_tables(config.eval.responses or "", "eval.responses", resolver(config))
    groups: dict[str, dict[str, Any]] = {}
    for table in tables:
        for number, row in enumerate(table.rows, start=1):
            place = f"{table.name}:{number}"
            said = row.get(key)
            texts = said if isinstance(said, list) else [said]
            if not texts or not all(isinstance(text, str) for text in texts):
                hint = f"its columns: {', '.join(row)}; name one by eval.response_key"
                raise UserError(f"{place}: the response (column {key!r}) is no text, nor a list of texts; {hint}")
            answers = [_from_row(str(text), row) for text in texts]
            groups.setdefault(_question_of(row, dataset, place), row | {_ANSWERS: []})[_ANSWERS] += answers
    questions = arrange(config, examples, dataset, [Table(tables[0].name, list(groups.values()))], asked=True)
    return questions, {uid: question.row.pop(_ANSWERS) for uid, question in questions.by_uid.items()}


def _from_row(text: str, row: dict[str, Any]) -> Answer:
    finish, length = row.get("finish"), row.get("response_length")
    return Answer(text, str(finish or "stop"), length if isinstance(length, int) else len(text.split()))


def _question_of(row: dict[str, Any], dataset: DataSet, place: str) -> str:
    """Return the key that rows of one question share: their uid, else their prompt; None of a row without either."""
    if row.get("uid") is not None:
        return f"uid {row['uid']}"
    found = next((value for name in dataset.prompt_key if (value := lookup(row, name)) is not MISSING), None)
    return f"row {place}" if found is None else f"prompt {found}"
