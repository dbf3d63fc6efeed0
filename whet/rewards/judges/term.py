"""A judge as a term of the reward: a number for each response, or the share of comparisons that it wins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from whet.errors import UserError
from whet.rewards.judges.asking import AskError, Asking, Message
from whet.rewards.judges.pairs import pairs_of
from whet.rewards.judges.questions import Questions
from whet.rewards.judges.verdict import Verdicts
from whet.rewards.protocol import TermFailure, TermScore
from whet.types import Prompt, Sample

QUOTED = 400  # characters of a judge's text in a message
Result = TermScore | TermFailure
Reference = Callable[[Prompt], str | None]  # the response to compare with; None where the row has none


@dataclass(frozen=True, slots=True)
class Pairing:
    """How responses are compared."""

    opponents: int | None = None
    swap: bool = True
    reference: Reference | None = None  # None compares the responses of a group with each other


@dataclass(frozen=True, slots=True)
class _Heard:
    """One answer: the share of a win of the first response, or why there is none."""

    share: float | None
    text: str
    failure: TermFailure | None = None


class JudgeTerm:
    """Scores of a judge."""

    name = "judge"
    together = False

    def __init__(
        self,
        asking: Asking,
        questions: Questions,
        verdicts: Verdicts,
        pairing: Pairing | None = None,
        tries: bool = True,
        load: Callable[[], None] | None = None,
        close: Callable[[], None] | None = None,
        warn: Callable[[str], None] = print,
    ) -> None:
        """Without `pairing` each response is judged by itself. `tries` asks about a row before training starts."""
        self._asking, self._questions, self._verdicts, self._pairing = asking, questions, verdicts, pairing
        self._tries, self._load, self._close, self._warn = tries, load, close, warn

    async def check(self, prompts: list[Prompt]) -> None:
        """Write the questions of rows with their answers as responses, and ask the first of them."""
        asked = [self._trial(prompt) for prompt in prompts]
        if not asked or not self._tries:
            return
        try:
            text = await self._asking(asked[0])
        except AskError as error:
            raise UserError(error.detail) from None
        read = self._verdicts.winner if self._pairing else self._verdicts.number
        if read(text) is None:
            self._warn(f"{_no_verdict(text).detail} (tried with row {prompts[0].uid}; training goes on)")

    def ready(self) -> None:
        """Load the judge, if it runs here."""
        if self._load is not None:
            self._load()

    async def score(self, samples: list[Sample]) -> list[Result]:
        """Ask about all samples at once."""
        if self._pairing is None:
            return list(await asyncio.gather(*(self._point(sample) for sample in samples)))
        if self._pairing.reference is not None:
            return list(await asyncio.gather(*(self._against(sample) for sample in samples)))
        groups: dict[object, list[int]] = {}
        for i, sample in enumerate(samples):
            groups.setdefault(sample.prompt.uid if sample.group is None else sample.group, []).append(i)
        results: list[Result | None] = [None] * len(samples)
        found = await asyncio.gather(*(self._among([samples[i] for i in group]) for group in groups.values()))
        for group, scores in zip(groups.values(), found):
            for i, score in zip(group, scores):
                results[i] = score
        return [result for result in results if result is not None]

    def close(self) -> None:
        """Give back the store of answers, and the engine if there is one."""
        self._asking.close()
        if self._close is not None:
            self._close()

    def _trial(self, prompt: Prompt) -> list[Message]:
        answer = "" if prompt.answer is None else str(prompt.answer)
        if self._pairing is None:
            return self._questions.about(prompt, answer)
        other = self._pairing.reference(prompt) if self._pairing.reference else ""
        return self._questions.between(prompt, answer, other or "")

    async def _point(self, sample: Sample) -> Result:
        heard = await self._hear(lambda: self._questions.about(sample.prompt, sample.text), self._verdicts.number)
        if heard.failure is not None:
            return heard.failure
        assert heard.share is not None
        return TermScore(heard.share, note=heard.text)

    async def _against(self, sample: Sample) -> Result:
        """Compare a response with the reference of its row."""
        assert self._pairing is not None
        assert self._pairing.reference is not None
        other = self._pairing.reference(sample.prompt)
        if other is None:
            return TermFailure("bad result", "no reference", "its row has no response to compare with")
        heard = await self._compare(sample.prompt, sample.text, other, 0)
        return _rate([(each, "the reference") for each in heard])

    async def _among(self, samples: list[Sample]) -> list[Result]:
        """Compare the responses of a group with each other; one without others to compare with is a tie."""
        assert self._pairing is not None
        if len(samples) == 1:
            return [TermScore(0.5)]
        pairs = pairs_of(len(samples), self._pairing.opponents)
        texts = [sample.text for sample in samples]
        compared = await asyncio.gather(
            *(self._compare(samples[i].prompt, texts[i], texts[j], i + j) for i, j in pairs)
        )
        heard: list[list[tuple[_Heard, str]]] = [[] for _ in samples]
        for (i, j), answers in zip(pairs, compared):
            for answer in answers:
                other = None if answer.share is None else 1.0 - answer.share
                heard[i].append((answer, f"response {j}"))
                heard[j].append((_Heard(other, answer.text, answer.failure), f"response {i}"))
        return [_rate(each) for each in heard]

    async def _compare(self, prompt: Prompt, first: str, second: str, parity: int) -> list[_Heard]:
        """Compare two responses in both orders, or in one; shares are the first one's."""
        assert self._pairing is not None
        if first == second:
            return [_Heard(0.5, "the same text")]
        orders = [False, True] if self._pairing.swap else [bool(parity % 2)]

        async def ask(turned: bool) -> _Heard:
            a, b = (second, first) if turned else (first, second)
            return await self._hear(lambda: self._questions.between(prompt, a, b), self._verdicts.winner)

        heard = await asyncio.gather(*map(ask, orders))
        return [
            _Heard(1.0 - each.share, each.text) if turned and each.share is not None else each
            for turned, each in zip(orders, heard)
        ]

    async def _hear(self, write: Callable[[], list[Message]], read: Callable[[str], float | None]) -> _Heard:
        """Ask a question and read the verdict; whatever fails costs this question only."""
        try:
            text = await self._asking(write())
        except AskError as error:
            return _Heard(None, "", TermFailure(error.failure, error.cause, error.detail))
        except UserError as error:  # of the rubric, on this row
            return _Heard(None, "", TermFailure("raised", "rubric", str(error)))
        share = read(text)
        return _Heard(share, text, _no_verdict(text) if share is None else None)


def _rate(heard: list[tuple[_Heard, str]]) -> Result:
    """Return the share of wins over the comparisons that have a verdict."""
    shares = [each.share for each, _ in heard if each.share is not None]
    note = "\n\n".join(f"against {other} ({_word(each.share)}):\n{each.text}" for each, other in heard)
    if not shares:
        failure = next(each.failure for each, _ in heard if each.failure is not None)
        return TermFailure(failure.failure, failure.cause, failure.detail, note)
    numbers = {"comparisons": float(len(shares))}
    return TermScore(sum(shares) / len(shares), numbers, note=note)


def _word(share: float | None) -> str:
    return "no verdict" if share is None else {0.0: "lost", 1.0: "won"}.get(share, "tie")


def _no_verdict(text: str) -> TermFailure:
    shown = text if len(text) <= QUOTED else f"{text[:QUOTED]}..."
    return TermFailure(
        "bad result", "no verdict", f"worker.reward.judge gave no verdict that can be read: {shown!r}", text
    )
