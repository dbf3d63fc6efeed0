"""`whet reward bench`: its arguments, its order of work, and what it prints."""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from whet.checkpoint.durable import write_text
from whet.config import Config, load_config
from whet.config.checks.reward import REWARD_CHECKS
from whet.config.checks.run import run_checks
from whet.config.problems import raise_problems
from whet.errors import UserError
from whet.evals.rewards.bench import agreement, differences, planted, score_timed
from whet.evals.rewards.report import report
from whet.evals.rewards.rows import Bench, read_bench
from whet.rewards.choice import with_match
from whet.rewards.scorer import RewardScorer
from whet.training.parts import resolver

_VALUES = ("--responses", "--response-column", "--reward", "--against", "--label", "--hack-rows", "--json")


@dataclass(frozen=True, slots=True)
class Options:
    """What to score, with what, and what to report."""

    data: str
    responses: str | None
    column: str
    reward: str | None  # None = what the config says
    against: str | None
    label: str | None
    hack_rows: int
    json: str | None
    strict: bool


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"whet reward bench: {message} (whet reward --help)")


def parse(arguments: Sequence[str]) -> tuple[Options, list[str]]:
    """The options of a command line, and the arguments of the config."""
    own, rest, left = [], [], list(arguments)
    while left:
        word = left.pop(0)
        if not word.startswith("--"):
            rest.append(word)
            continue
        own.append(word)
        if word in _VALUES and left:
            own.append(left.pop(0))
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--responses")
    parser.add_argument("--response-column", default="response")
    parser.add_argument("--reward")
    parser.add_argument("--against")
    parser.add_argument("--label")
    parser.add_argument("--hack-rows", type=int, default=5)
    parser.add_argument("--json")
    parser.add_argument("--strict", action="store_true")
    given = parser.parse_args(own)
    if not rest or "=" in rest[0]:
        raise UserError("whet reward bench takes a data set: whet reward bench DATA (whet reward --help)")
    if given.hack_rows < 0:
        raise UserError(f"whet reward bench: --hack-rows {given.hack_rows}: write 0 for none")
    options = Options(
        rest[0],
        given.responses,
        given.response_column,
        given.reward,
        given.against,
        given.label,
        given.hack_rows,
        given.json,
        given.strict,
    )
    return options, rest[1:]


def run(arguments: Sequence[str]) -> int:
    """Run the command; the exit code is 1 with --strict if a hack was paid."""
    options, rest = parse(arguments)
    config = load_config(rest)
    raise_problems(run_checks(REWARD_CHECKS, config))
    bench = read_bench(config, options.data, options.responses, options.column, options.label)
    found = measure(config, options, bench)
    text = json.dumps(found, indent=1, ensure_ascii=False)
    if options.json == "-":
        print(text)
    else:
        if options.json is not None:
            _write(Path(options.json).expanduser(), text)
        print(report(found))
    return 1 if options.strict and any(each["paid"] for each in found["hacks"]) else 0


def _write(path: Path, text: str) -> None:
    try:
        write_text(path, text + "\n")
    except OSError as error:
        raise UserError(f"whet reward bench --json {path}: cannot be written ({error.strerror})") from error


def measure(config: Config, options: Options, bench: Bench) -> dict[str, Any]:
    """Everything that was asked for, as plain values."""
    workers = config.worker.reward.num_cpus
    spec = config.worker.reward.reward_function if options.reward is None else options.reward
    found: dict[str, Any] = {"reward": spec or "(by data_source)", "data": options.data, "workers": workers}
    with open_scorer(config, spec or "") as scorer:
        scorer.check(bench.prompts[:2] if spec else _of_each_source(bench))
        if bench.samples:
            found["speed"] = score_timed(scorer, bench.samples, workers).summary(len(bench.samples))
            scorer.require_scores(bench.samples, options.data)
            found["mean_reward"] = sum(each.scores["overall"] for each in bench.samples) / len(bench.samples)
            found["failed"] = sum(each.failure is not None for each in bench.samples)
        found["hacks"] = planted(scorer, bench.prompts[: options.hack_rows], workers) if options.hack_rows else []
    if options.label is not None:
        found["labels"] = agreement(bench.samples, bench.labels)
    if options.against is not None:
        found["against"] = {"reward": options.against, **_against(config, options.against, bench, workers)}
    return found


def open_scorer(config: Config, spec: str) -> RewardScorer:
    """The reward of a spec ("" = by the config or the rows' data source) in its worker processes."""
    reward = config.worker.reward
    if spec != (reward.reward_function or ""):
        reward = replace(reward, combine={}, url=None, reward_function_kwargs={})
    reward = replace(reward, reward_function_kwargs=with_match(spec, reward, config.algorithm.match))
    return RewardScorer(spec, reward, resolver(config), lambda text: print(text, file=sys.stderr), None, config.sandbox)


def _against(config: Config, spec: str, bench: Bench, workers: int) -> dict[str, Any]:
    if not bench.samples:
        raise UserError("whet reward bench --against compares scores of responses: name them with --responses")
    others = [copy.copy(sample) for sample in bench.samples]
    with open_scorer(config, "" if spec == "data_source" else spec) as scorer:
        speed = score_timed(scorer, others, workers).summary(len(others))
    return {"speed": speed, **differences(bench.samples, others)}


def _of_each_source(bench: Bench) -> list[Any]:
    return list({str(each.extra.get("data_source")): each for each in reversed(bench.prompts)}.values())[:64]
