"""Answers become scores: by a metric that comes with whet, or by a reward function in its worker processes."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from whet.config import Config
from whet.data.columns import MediaError, column_items, lookup
from whet.errors import RewardsFailedError, UserError
from whet.evals.answers import Answer
from whet.evals.extract import extract, normal
from whet.evals.metrics import METRICS
from whet.evals.questions import Question, Questions, find, scored_by_environment
from whet.evals.registry import VALIDATION
from whet.evals.respond import Answers
from whet.rewards.choice import by_data_source, with_match
from whet.rewards.protocol import SampleScorer
from whet.rewards.scorer import RewardScorer
from whet.tracking.console import Console
from whet.training.measure import correctness
from whet.types import Media, Prompt, Sample

READ_AT_ONCE = 64  # answers whose images are decoded together


@dataclass(slots=True)
class Scored:
    """One answer with its scores."""

    question: Question
    index: int  # which of the question's answers
    answer: Answer
    said: str | None  # the final answer in it
    correct: float
    scores: dict[str, float]
    kind: str = ""
    failure: str | None = None  # why it was not answered, or not scored

    @property
    def vote(self) -> str | None:
        """The final answer in the form in which equal ones are equal."""
        return normal(self.said) if self.said is not None else None


class Judge:
    """Scores the answers of one data set."""

    def __init__(
        self, config: Config, examples: Path, questions: Questions, folder: Path, console: Console, stack: ExitStack
    ) -> None:
        self._config, self._questions = config, questions
        dataset = questions.dataset
        self._scorer: SampleScorer | None = None
        self.total_failure: RewardsFailedError | None = None  # set where the function failed on every answer
        self._by_environment = scored_by_environment(config, dataset)
        if not dataset.score and not self._by_environment:
            self._scorer = stack.enter_context(self._open_scorer(examples, folder, console))
            self._check(self._scorer)

    def _open_scorer(self, examples: Path, folder: Path, console: Console) -> SampleScorer:
        """The data set's own function, or what the config scores by."""
        config, dataset = self._config, self._questions.dataset
        if not dataset.reward_function and config.worker.reward.terms:
            return self._open_judge(examples, folder, console)
        reward = replace(config.worker.reward, reward_function_kwargs=dataset.reward_function_kwargs)
        spec = dataset.reward_function or ""
        if not spec or spec == config.worker.reward.reward_function:
            options = with_match(spec, reward, config.algorithm.match)
            reward = replace(reward, reward_function_kwargs=options)
        resolve = lambda value: find(config, examples, value)  # noqa: E731
        return RewardScorer(spec, reward, resolve, console.warn, folder / "reward.log", config.sandbox)

    def _open_judge(self, examples: Path, folder: Path, console: Console) -> SampleScorer:
        """The judge of the config, with the functions that are added to it."""
        config = self._config
        if "model" in config.worker.reward.terms:
            raise UserError(
                "worker.reward.model reads the policy's tokens, which an evaluation does not have: score by a function "
                "or a judge, or validate by whet train with trainer.val_only=true"
            )
        from whet.training.reward_terms import open_mixed

        read = replace(config, data=self._questions.data)
        return open_mixed(
            read, None, console, folder, lambda value: find(config, examples, value), folder / "reward.log"
        )

    def _check(self, scorer: SampleScorer) -> None:
        """Try the function on two rows; where data sources choose scorers, on one row of each source."""
        questions = list(self._questions.by_uid.values())
        tried = questions[:2]
        if not self._questions.dataset.reward_function and by_data_source(self._config.worker.reward):
            tried = list({str(each.row.get("data_source")): each for each in reversed(questions)}.values())[:64]
        try:
            scorer.check([self._prompt(each) for each in tried])
            scorer.ready()
        except UserError as error:
            name = self._questions.dataset.name
            if self._config.worker.reward.is_named or self._questions.dataset.reward_function or name == VALIDATION:
                raise
            raise UserError(f"{error}; or set eval.definitions.{name}.score to one of {', '.join(METRICS)}") from error

    def score(self, answers: Answers) -> list[Scored]:
        """Every answer, in the order of the questions."""
        pairs = [
            (self._questions.by_uid[uid], index, each)
            for uid, given in answers.items()
            for index, each in enumerate(given)
        ]
        if self._by_environment:
            return [self._as_earned(*pair) for pair in pairs]
        return self._by_function(pairs) if self._scorer else self._by_metric(pairs)

    def _as_earned(self, question: Question, index: int, answer: Answer) -> Scored:
        """Score an episode by its environment: the accuracy that it reports, else its rewards."""
        correct = answer.earned if answer.accuracy is None else answer.accuracy
        said = extract(answer.text, self._questions.dataset.extract)
        return Scored(question, index, answer, said, correct, {"reward": answer.earned}, failure=answer.failure)

    def _by_metric(self, pairs: list[tuple[Question, int, Answer]]) -> list[Scored]:
        dataset = self._questions.dataset
        metric = METRICS[dataset.score or ""]
        found = []
        for question, index, answer in pairs:
            judged = metric(answer.text, question.truth, dataset.extract)
            others = {name: value for name, value in judged.scores.items() if name != "accuracy"}
            correct = judged.scores["accuracy"]
            found.append(Scored(question, index, answer, judged.said, correct, others, judged.kind, answer.failure))
        return found

    def _by_function(self, pairs: list[tuple[Question, int, Answer]]) -> list[Scored]:
        assert self._scorer is not None
        samples = [self._sample(*pair) for pair in pairs]
        size = READ_AT_ONCE if self._scorer.wants("images") else max(1, len(samples))
        for start in range(0, len(samples), size):
            self._score(pairs[start : start + size], samples[start : start + size])
        try:
            self._scorer.require_scores(samples, self._questions.dataset.name)
        except RewardsFailedError as error:
            self.total_failure = error
        score = correctness(samples)
        extractors = self._questions.dataset.extract
        return [
            Scored(
                question,
                index,
                answer,
                extract(answer.text, extractors),
                score(sample),
                _others(sample.scores),
                failure=answer.failure or sample.failure,
            )
            for (question, index, answer), sample in zip(pairs, samples)
        ]

    def _score(self, pairs: list[tuple[Question, int, Answer]], samples: list[Sample]) -> None:
        """Score samples, with their images in memory meanwhile where the function asks for them."""
        assert self._scorer is not None
        if self._scorer.wants("images"):
            media: dict[str, Media] = {}
            for (question, _, _), sample in zip(pairs, samples):
                if question.uid not in media:
                    media[question.uid] = self._media(question)
                sample.prompt.media = media[question.uid]
        self._scorer.score(samples)
        for sample in samples:
            sample.prompt.media = None

    def _media(self, question: Question) -> Media:
        """Images of a question's column, decoded; those of a chat are not looked for."""
        from whet.data.images import decode, open_image

        data = self._questions.data
        folder = Path(data.image_dir) if data.image_dir else None
        try:
            return Media([decode(open_image(each, folder)) for each in column_items(question.row, data.image_key)])
        except MediaError as error:
            raise UserError(f"{question.uid}: an image (column {data.image_key!r}) {error}.") from error

    def _sample(self, question: Question, index: int, answer: Answer) -> Sample:
        ids = [0] * answer.length  # a reward function sees only how many there are
        return Sample.written(self._prompt(question), ids, [], "stop", index=index, text=answer.text)

    def _prompt(self, question: Question) -> Prompt:
        data, row = self._questions.data, question.row
        text = row.get("prompt_text") or lookup(row, data.prompt_key)
        media = (data.image_key, data.video_key)
        columns = {name: value for name, value in row.items() if name not in media}
        return Prompt(question.uid, [], text if isinstance(text, str) else "", question.truth.answer, columns)


def _others(scores: dict[str, float]) -> dict[str, float]:
    """Scores besides accuracy, which is counted by itself; `overall` is called reward, a score of that name yields."""
    names = {"overall": "reward", "reward": "reward_score"}
    named = {names.get(name, name): value for name, value in scores.items()}
    return {name: value for name, value in named.items() if name not in ("accuracy", "acc")}
