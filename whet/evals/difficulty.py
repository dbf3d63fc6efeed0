"""Pass rates of prompts: how often a model's samples are right, for `whet data filter`.

The prompts of `data.val_files` are answered and scored as `whet eval` does it. Answers are in the journal of
`eval.output` as soon as they are there, so that a killed estimate resumes.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from transformers.utils import logging as transformers_logging

from whet.config import Config, summary_lines
from whet.data.files import Table
from whet.evals.evaluate import open_jobs, report_folder
from whet.tracking.console import Console
from whet.training.measure import is_solved


@dataclass(frozen=True, slots=True)
class PassRates:
    """The rows that were asked, and the fraction of right samples for each, by `table:row` counted from 1.

    A row without a rate was too long to be asked, or none of its samples could be scored.
    """

    tables: list[Table]
    by_uid: dict[str, float]
    model: str
    samples: int  # of a prompt


def pass_rates(config: Config, examples: Path) -> PassRates:
    """Sample and score every prompt; raises `RewardsFailedError` where no sample at all could be scored."""
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    console = Console(config.trainer.quiet)
    console.notes(summary_lines(config, "eval"))
    folder = report_folder(config)
    with ExitStack() as stack:
        config, who, (job,) = open_jobs(config, examples, folder, console, stack)
        answers = job.answer()
        right: defaultdict[str, list[bool]] = defaultdict(list)
        for each in job.judge.score(answers):
            if each.failure is None:
                right[each.question.uid].append(is_solved(each.correct))
        if job.judge.total_failure is not None:
            raise job.judge.total_failure
        rates = {uid: sum(found) / len(found) for uid, found in right.items()}
        return PassRates(job.questions.tables, rates, who(), max(map(len, answers.values()), default=0))
