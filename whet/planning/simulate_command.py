"""`whet plan simulate`: the step time of each placement of N devices."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from whet.errors import UserError
from whet.planning.decoding import DecodeCost
from whet.planning.lengths import DISTRIBUTIONS, draw, read_lengths
from whet.planning.machines import DEFAULT, find_machine
from whet.planning.options import Options, parse
from whet.planning.placements import Costs, rows, table
from whet.planning.planned import Plan, Question, make_plan
from whet.planning.simulate import UpdateCost

_VALUES = (
    "--gpu",
    "--gpus",
    "--nodes",
    "--mean-prompt",
    "--mean-response",
    "--lengths",
    "--spread",
    "--staleness",
    "--steps",
    "--seed",
    "--reward",
    "--decode",
    "--update",
    "--sync",
)
_BOUNDS = (1, 2, 4, 8)
_MOST_EVENTS = 5_000_000  # samples in all: minutes


def run(arguments: list[str]) -> int:
    """Simulate the placements of a run and print their table."""
    options = parse("whet plan simulate", arguments, _VALUES, ("--json",))
    plan = make_plan(
        Question(
            options.config(),
            find_machine(options.values.get("--gpu", DEFAULT)),
            options.number("--mean-prompt", 1),
            options.number("--mean-response", 1),
        )
    )
    steps = options.whole("--steps", 2, 10_000) or 20
    bounds = [int(each) for each in options.numbers("--staleness", (), 1) or _BOUNDS]
    lengths = _lengths(options, plan, steps)
    reward = options.number("--reward", 0) or 0.0
    found = rows(plan, _costs(options), lengths, bounds, reward, steps)
    if "--json" in options.switches:
        print(json.dumps([asdict(row) for row in found], indent=2))
        return 0
    work, ordered = plan.subject.work, sorted(lengths)
    middle, high = ordered[len(ordered) // 2], ordered[int(0.99 * (len(ordered) - 1))]
    print(
        f"{plan.name} on {plan.subject.devices.count} × {plan.subject.machine.name}: {work.prompts} prompts × "
        f"{work.samples} samples a step; lengths: mean {sum(lengths) / len(lengths):.0f}, median {middle}, "
        f"99% below {high}"
    )
    print(table(found))
    if plan.subject.devices.count == 1:
        print("One device cannot be divided: sampling and learning take turns on it (trainer.max_staleness).")
    return 0


def _lengths(options: Options, plan: Plan, steps: int) -> list[int]:
    work, kind = plan.subject.work, options.values.get("--lengths", "lognormal")
    count = work.prompts * work.samples * steps
    if count > _MOST_EVENTS:
        raise UserError(f"{count:,} samples are too many to simulate (at most {_MOST_EVENTS:,}): lower --steps")
    seed = options.whole("--seed", 0, 2**31) or 0
    if kind in DISTRIBUTIONS:
        spread = options.number("--spread", 0.01, 5) or 0.8
        return draw(kind, work.response_mean, work.response_max, count, seed, spread)
    folder = Path(os.path.expanduser(kind))
    if not folder.is_dir():
        raise UserError(f"--lengths {kind}: choose one of {', '.join(DISTRIBUTIONS)}, or name the folder of a run")
    return read_lengths(folder)


def _costs(options: Options) -> Costs | None:
    """Return measured costs where they are given: both of decoding and of updating."""
    decode = options.numbers("--decode", (3, 4), 0)
    update = options.numbers("--update", (2,), 0)
    if (decode is None) != (update is None):
        raise UserError("--decode and --update belong together: give both, or neither to take them from the plan")
    if decode is None or update is None:
        return None
    base, per_sequence, per_token, *prefill = decode
    cost = DecodeCost(base, per_sequence, per_token, prefill=prefill[0] if prefill else 0.0)
    return Costs(cost, UpdateCost(update[0], update[1]), options.number("--sync", 0) or 0.0)
